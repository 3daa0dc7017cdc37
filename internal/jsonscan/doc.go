// Package jsonscan reads the few fields of a JSON body that routing needs without
// decoding the rest: it walks over the text once, checks it on the way, and hands
// out slices of it. Arrays of token ids, most of a selection request, are read by
// themselves.
//
// Nothing here keeps state or starts goroutines. A Reader belongs to one
// goroutine.
package jsonscan
