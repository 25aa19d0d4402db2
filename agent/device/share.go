package device

// Share is a part of one GPU: Parts of Of equal ones. A slice of three sevenths is
// {3, 7}, one of four replicas of a shared GPU {1, 4}.
type Share struct{ Parts, Of int64 }

// Whole is a whole GPU.
var Whole = Share{Parts: 1, Of: 1}

// Valid says that it is more than nothing and at most a whole GPU, of at most 4,096
// parts.
func (s Share) Valid() bool { return s.Parts > 0 && s.Parts <= s.Of && s.Of <= 4096 }

// Times is a part of this part: half of a slice of one seventh is a fourteenth of the
// GPU.
func (s Share) Times(part Share) Share {
	return Share{Parts: s.Parts * part.Parts, Of: s.Of * part.Of}
}
