package agent

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conditions are those of the GPUNode.
type conditions struct{ all []metav1.Condition }

// maxMessage is the most that a condition says, in bytes.
const maxMessage = 256

// set says that there is such a condition, unless there is an error. The message of an
// error that goes on stays the first one, because one that counts seconds would have
// the GPUNode written with each tick.
func (c *conditions) set(kind string, err error, now time.Time) {
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AsExpected", LastTransitionTime: metav1.NewTime(now).Rfc3339Copy()}
	if err != nil {
		if meta.IsStatusConditionFalse(c.all, kind) {
			return
		}
		message := err.Error()
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Failing", message[:min(len(message), maxMessage)]
	}
	meta.SetStatusCondition(&c.all, condition)
}
