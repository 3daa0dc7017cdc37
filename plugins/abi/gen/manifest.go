package main

import (
	"fmt"

	"github.com/routerd/routerd/plugins/abi"
)

func manifest(d *doc) {
	d.head("Manifest")
	d.line("JSON of up to %d bytes in the custom section `%s`. Unknown fields outside `ext`, fields given twice and strings of over 256 characters or with characters that do not print are refused.\n", abi.MaxManifestBytes, abi.ManifestSection)
	d.table("field", "value", "default")
	d.row("`abi`", code(abi.ManifestABI), "required")
	d.row("`minor`", "the minor version that the module was built for", "0")
	d.row("`name`", "2 to 63 of a-z, 0-9, dot, hyphen", "required")
	d.row("`version`", "semantic version", "required")
	d.row("`description`, `license`, `source`", "text", "empty")
	d.row("`kinds[]`", "`scorer`, `filter`, `lora-scorer`, `picker`, `policy`", "required")
	d.row("`columns[].name`", "a column; one that this version does not know only with `required: false`", "required")
	d.row("`columns[].required`", "whether a host that does not know the column refuses the module", "true")
	d.row("`columns[].missing`", "a finite number or `\"nan\"`", "the column's own")
	d.row("`request_fields[]`", "request fields", "none")
	d.row("`config_schema`", fmt.Sprintf("JSON Schema 2020-12 of up to %d values, references inside the document only", abi.MaxSchemaNodes), "none")
	d.row("`limits.memory_pages`", fmt.Sprintf("1 to %d pages of 64 KiB", abi.MaxPages), fmt.Sprintf("%d; %d where `sdk.name` is `%s`", abi.DefaultPages, abi.DefaultPagesGo, abi.SDKGo))
	d.row("`limits.fuel_base`", fmt.Sprintf("0 to %d", abi.MaxFuelBase), fmt.Sprint(abi.DefaultFuelBase))
	d.row("`limits.fuel_per_row`", fmt.Sprintf("0 to %d", abi.MaxFuelPerRow), fmt.Sprint(abi.DefaultFuelPerRow))
	d.row("`limits.max_rows`", fmt.Sprintf("1 to %d", abi.MaxRows), fmt.Sprint(abi.DefaultMaxRows))
	d.row("`state`", "`none`, `instance`", "`none`")
	d.row("`deterministic`", "true, false", "true")
	d.row("`imports[]`", "names of module "+code(abi.ModuleRouterd)+", equal to the module's real list", "none")
	d.row("`score_range`", "`{min, max}`, both included", "none")
	d.row("`monotonic[]`", "`{column, direction}`; direction `increasing` or `decreasing`", "none")
	d.row("`metrics[]`", fmt.Sprintf("up to %d of `{name, type, help}`; type `counter` or `gauge`", abi.MaxMetrics), "none")
	d.row("`traces[]`", fmt.Sprintf("up to %d names", abi.MaxTraces), "none")
	d.row("`sdk`", "`{name, version}`", "none")
	d.row("`ext`", "an object, ignored", "none")
}
