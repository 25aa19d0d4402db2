package show

import (
	"fmt"
	"slices"
	"strings"
)

// mostNames is how many names an error gives that might have been meant.
const mostNames = 5

// notFound says that there is nothing of a name, and which names begin alike.
func notFound(what, name string, all []string) error {
	slices.Sort(all)
	all = slices.Compact(all)
	var near []string
	plain := name[strings.LastIndex(name, "/")+1:]
	for _, other := range all {
		if len(near) < mostNames && (strings.Contains(other, plain)) {
			near = append(near, other)
		}
	}
	switch {
	case len(near) > 0:
		return fmt.Errorf("no %s is called %q; there is %s", what, name, strings.Join(near, ", "))
	case len(all) > 0 && len(all) <= mostNames:
		return fmt.Errorf("no %s is called %q; there is %s", what, name, strings.Join(all, ", "))
	}
	return fmt.Errorf("no %s is called %q", what, name)
}
