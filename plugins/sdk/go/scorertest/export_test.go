package scorertest

// Differences is what Check reports of a plugin and its manifest.
var Differences = differences
