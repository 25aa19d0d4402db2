package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "muster.dev", Version: "v1alpha1"}

// AddToScheme makes a scheme know the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RuntimeDefaults{}, &RuntimeDefaultsList{}, &AdmissionPolicy{}, &AdmissionPolicyList{}, &GPUNode{}, &GPUNodeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
