package conversion

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// convert has one object converted as the API server does.
func convert(t *testing.T, version, object string) (map[string]any, metav1.Status) {
	t.Helper()
	review := apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "ConversionReview"},
		Request: &apiextensionsv1.ConversionRequest{
			UID: "1", DesiredAPIVersion: "kueue.x-k8s.io/" + version, Objects: []runtime.RawExtension{{Raw: []byte(object)}},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	Handler().ServeHTTP(answer, httptest.NewRequest("POST", Path, bytes.NewReader(body)))
	review = apiextensionsv1.ConversionReview{}
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		t.Fatalf("%v in %s", err, answer.Body)
	}
	if len(review.Response.ConvertedObjects) != 1 {
		return nil, review.Response.Result
	}
	got := map[string]any{}
	if err := json.Unmarshal(review.Response.ConvertedObjects[0].Raw, &got); err != nil {
		t.Fatal(err)
	}
	return got, review.Response.Result
}

func TestFieldsThatHaveOtherNamesInTheOlderVersionAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		version, object string
		// want is where the value must be found.
		path  []string
		value string
	}{
		"the cohort of a ClusterQueue, upwards": {
			version: "v1beta2", object: `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"ClusterQueue","metadata":{"name":"q"},"spec":{"cohort":"all"}}`,
			path: []string{"spec", "cohortName"}, value: "all",
		},
		"the cohort of a ClusterQueue, downwards": {
			version: "v1beta1", object: `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue","metadata":{"name":"q"},"spec":{"cohortName":"all"}}`,
			path: []string{"spec", "cohort"}, value: "all",
		},
		"a Workload's priority class": {
			version: "v1beta2", object: `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Workload","metadata":{"name":"w"},"spec":{"priorityClassName":"high","priorityClassSource":"kueue.x-k8s.io/workloadpriorityclass"}}`,
			path: []string{"spec", "priorityClassRef", "name"}, value: "high",
		},
		"a LocalQueue's ClusterQueue": {
			version: "v1beta1", object: `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue","metadata":{"name":"l","namespace":"n"},"spec":{"clusterQueue":"q"}}`,
			path: []string{"spec", "clusterQueue"}, value: "q",
		},
		"a Cohort's parent": {
			version: "v1beta2", object: `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Cohort","metadata":{"name":"c"},"spec":{"parentName":"p"}}`,
			path: []string{"spec", "parentName"}, value: "p",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, status := convert(t, tc.version, tc.object)
			if status.Status != metav1.StatusSuccess {
				t.Fatalf("the result is %+v", status)
			}
			value, _, err := unstructured.NestedString(got, tc.path...)
			if diff := cmp.Diff(tc.value, value); diff != "" || err != nil {
				t.Errorf("%v (-want +got, %v):\n%s", tc.path, err, diff)
			}
			if got["apiVersion"] != "kueue.x-k8s.io/"+tc.version {
				t.Errorf("apiVersion is %v", got["apiVersion"])
			}
		})
	}
}

func TestWhatIsNoObjectOfTheAPIIsRefusedWithAReason(t *testing.T) {
	for name, object := range map[string]string{
		"another kind":  `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Nothing","metadata":{"name":"q"}}`,
		"another group": `{"apiVersion":"example.com/v1","kind":"ClusterQueue","metadata":{"name":"q"}}`,
		"a wrong type":  `{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"ClusterQueue","spec":{"cohort":7}}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, status := convert(t, "v1beta2", object); status.Status != metav1.StatusFailure || status.Message == "" {
				t.Errorf("the result is %+v", status)
			}
		})
	}
}
