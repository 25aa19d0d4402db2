package defaults

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// hostfile is set in the container that runs mpirun, by the Trainer and by the
	// MPI Operator, and in no other.
	hostfile = "OMPI_MCA_orte_default_hostfile"
	// forwarded lists variables, separated by semicolons, that mpirun gives to the
	// ranks that it starts over ssh. Those see nothing else of the environment of
	// the container in which they run. Seen with Open MPI 4.1.
	forwarded = "OMPI_MCA_mca_base_env_list"
)

// launcher is the container that starts the ranks of an MPI job, or nil.
func (s *stamper) launcher() *container {
	for _, c := range s.all() {
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == hostfile }) {
			return c
		}
	}
	return nil
}

// forward makes mpirun give the variables of the RuntimeDefaults to its ranks, with
// the values that the launcher has: its author's, where it has set some. A list of
// the author's own is left as it is.
func (s *stamper) forward(c *container) {
	list := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == forwarded })
	var there, missing []string
	if list >= 0 {
		there = strings.Split(c.Env[list].Value, ";")
	}
	for _, e := range s.by.Spec.Containers.Env {
		has := slices.ContainsFunc(c.Env, func(have corev1.EnvVar) bool { return have.Name == e.Name })
		if has && !slices.Contains(there, e.Name) {
			missing = append(missing, e.Name)
		}
	}
	field := fmt.Sprintf("env %s of container %s", forwarded, c.Name)
	switch want := strings.Join(slices.Concat(there, missing), ";"); {
	case len(missing) == 0:
	case list < 0:
		s.decide(field, want, "", absent)
		c.Env = append(c.Env, corev1.EnvVar{Name: forwarded, Value: want})
		s.doc.extend(c.at.to("env"), variable(forwarded, want))
	case s.from[field] != "":
		s.changed = true
		c.Env[list].Value = want
		s.doc.set(c.at.to("env").at(list).to("value"), want)
	default:
		s.leave(field, strings.Join(missing, ";"), fmt.Sprintf("it is %q", c.Env[list].Value))
	}
}
