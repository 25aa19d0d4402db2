package typed

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/muster-gpu/muster/api/v1alpha1"
)

func TestAnObjectThatCannotBeReadKeepsNoOtherFromBeingRead(t *testing.T) {
	resource := v1alpha1.GroupVersion.WithResource("runtimedefaults")
	object := func(name, size string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "RuntimeDefaults", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"containers": map[string]any{"sharedMemory": map[string]any{"sizeLimit": size}}},
		}}
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{resource: "RuntimeDefaultsList"})
	for _, o := range []*unstructured.Unstructured{object("good", "1Gi"), object("bad", "1e99999999999999999999")} {
		if err := client.Tracker().Create(resource, o, ""); err != nil {
			t.Fatal(err)
		}
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(resource).Informer()
	if err := informer.SetTransform(Of[v1alpha1.RuntimeDefaults]); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	late := make(chan struct{})
	defer time.AfterFunc(time.Minute, func() { close(late) }).Stop()
	if !cache.WaitForCacheSync(late, informer.HasSynced) {
		t.Fatal("they are never read")
	}
	if all := List[v1alpha1.RuntimeDefaults](informer.GetStore()); len(all) != 1 || all[0].Name != "good" {
		t.Errorf("%v are read", all)
	}
}
