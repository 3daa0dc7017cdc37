package dump

// MaxValue is how many bytes a value may have.
const MaxValue = maxValue
