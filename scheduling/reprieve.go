package scheduling

// reprieve lets as many of the candidates off as it can, those at the front
// rather than those behind, and returns the others in their order. off says
// whether a job can still start if all that it is given are let off, and then
// they are; else nothing has changed. Where a few of many cannot be let off, it
// is asked about the few times the logarithm of the many.
func reprieve[T any](candidates []T, off func([]T) (bool, error)) ([]T, error) {
	return reprieveSome(candidates, off, false)
}

// reprieveSome is reprieve; notAll says that it is known that not all of the
// candidates can be let off.
func reprieveSome[T any](candidates []T, off func([]T) (bool, error), notAll bool) ([]T, error) {
	if len(candidates) == 0 {
		return nil, nil
	}
	if !notAll {
		if ok, err := off(candidates); ok || err != nil {
			return nil, err
		}
	}
	if len(candidates) == 1 {
		return candidates, nil
	}
	half := len(candidates) / 2
	front, err := reprieveSome(candidates[:half], off, false)
	if err != nil {
		return nil, err
	}
	back, err := reprieveSome(candidates[half:], off, len(front) == 0)
	if err != nil {
		return nil, err
	}
	return append(front[:len(front):len(front)], back...), nil
}
