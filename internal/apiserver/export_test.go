package apiserver

// ParseFailure is parseFailure.
var ParseFailure = parseFailure
