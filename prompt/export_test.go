package prompt

// Partitions is how many partitions the tokenizer knows.
func (t *Tokenizer) Partitions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.slots)
}
