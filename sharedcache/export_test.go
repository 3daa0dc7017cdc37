package sharedcache

// Decode reads an answer for n blocks.
var Decode = decode
