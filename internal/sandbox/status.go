package sandbox

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"
)

// PrintStatus writes a table of the components of the sandbox in dir. It reads
// the state file and looks at the processes, so it works when the supervisor
// is dead, too. It returns an error when there is no sandbox.
func PrintStatus(dir string, out io.Writer, now time.Time) error {
	l, err := openLayout(dir)
	if err != nil {
		return err
	}
	state, err := readState(l)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tRESTARTS\tUPTIME\tLOG")
	row := func(c Component, status string) {
		uptime := "-"
		if c.Process.Alive() {
			uptime = duration.HumanDuration(now.Sub(c.Started))
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%s\t%s\n", c.Name, c.Process.PID, status, c.Restarts, uptime, c.Log)
	}
	supervisor := Component{Name: supervisorLog, Process: state.Supervisor, Started: state.Started, Log: l.log(supervisorLog)}
	supervisorStatus := string(state.Phase)
	if state.Phase != Failed && !state.Supervisor.Alive() {
		supervisorStatus = "Dead"
	}
	row(supervisor, supervisorStatus)
	for _, c := range state.Components {
		row(c, c.status())
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	if state.Phase == Failed {
		fmt.Fprintf(out, "\nThe sandbox did not come up: %s\n", state.Error)
		return nil
	}
	if supervisorStatus == "Dead" {
		fmt.Fprintf(out, "\nThe supervisor is dead; clean up with \"sandbox down --dir %s\".\n", l.dir)
		return nil
	}
	fmt.Fprintf(out, "\n%s\n", ExportLine(state.Kubeconfig))
	return nil
}

// status is one word, or how the component ended.
func (c Component) status() string {
	switch {
	case c.Process.Alive():
		return "Running"
	case c.Exit != "":
		return "Ended (" + c.Exit + ")"
	default:
		return "Dead"
	}
}

// ExportLine is the shell command that points kubectl at a kubeconfig. A path
// that the shell would take apart is quoted.
func ExportLine(kubeconfig string) string {
	if strings.ContainsFunc(kubeconfig, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-+,@%", r)
	}) {
		kubeconfig = "'" + strings.ReplaceAll(kubeconfig, "'", `'\''`) + "'"
	}
	return "export KUBECONFIG=" + kubeconfig
}
