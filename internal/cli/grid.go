package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"
)

// grid is a table with more columns than a line has room for: it is printed in
// parts, each of which begins with the fixed columns.
type grid struct{ fixed, rest []column }

// column is a column of a grid; all have as many cells.
type column struct {
	head  string
	cells []string
}

// gap is the space between two columns.
const gap = 2

func (c *column) width() int {
	w := utf8.RuneCountInString(cell(c.head))
	for _, text := range c.cells {
		w = max(w, utf8.RuneCountInString(cell(text)))
	}
	return w + gap
}

// print prints the grid, in one part where width is 0.
func (g *grid) print(w io.Writer, width int) {
	taken := 0
	for i := range g.fixed {
		taken += g.fixed[i].width()
	}
	for at := 0; at < len(g.rest) || at == 0; {
		end, used := at, taken
		for ; end < len(g.rest); end++ {
			used += g.rest[end].width()
			if width > 0 && used-gap > width && end > at {
				break
			}
		}
		if at > 0 {
			fmt.Fprintln(w)
		}
		part(w, append(append([]column{}, g.fixed...), g.rest[at:end]...))
		if at = end; at == 0 {
			return
		}
	}
}

func part(w io.Writer, columns []column) {
	line := make([]any, len(columns))
	for i := range columns {
		line[i] = columns[i].head
	}
	row(w, line...)
	if len(columns) == 0 {
		return
	}
	for r := range columns[0].cells {
		for i := range columns {
			line[i] = columns[i].cells[r]
		}
		row(w, line...)
	}
}

// lineWidth is how many characters a line of the output may have; 0 for as many
// as there are. $COLUMNS wins over the terminal.
func lineWidth(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return terminalWidth(w)
}
