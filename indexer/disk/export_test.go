package disk

// AddRaw writes a section of any bytes.
func (w *Writer) AddRaw(e Entry, section []byte) error {
	begin := w.begin()
	w.put(section)
	return w.end(&e, begin)
}
