package fragmentation

// maxKnown bounds how many states of nodes a Memo remembers.
const maxKnown = 1 << 15

// Memo remembers the fragments of nodes: few nodes of a cluster change from one
// question to the next, and many are alike. Its zero value remembers none. It is
// not safe for concurrent use.
type Memo struct {
	mix   *Mix
	known map[Free]float64
}

// Place is Mix.Place.
func (m *Memo) Place(mix *Mix, f *Free, r *Request) (Score, int) {
	if m.mix != mix || len(m.known) > maxKnown {
		m.mix = mix
		if m.known == nil {
			m.known = map[Free]float64{}
		}
		clear(m.known)
	}
	return place(f, r, m.fragment)
}

func (m *Memo) fragment(f Free) float64 {
	x, found := m.known[f]
	if !found {
		x = m.mix.Fragment(f)
		m.known[f] = x
	}
	return x
}
