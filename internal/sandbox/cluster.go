package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	fieldManager = "muster-sandbox"
	// tokenSeconds is the life of a component's service account token: as
	// long as the certificates'.
	tokenSeconds = int64(certificateLife / time.Second)
)

// cluster is the administrator's view of the running API server.
type cluster struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newCluster(config *rest.Config) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the administrator's client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the administrator's client: %w", err)
	}
	return &cluster{
		client: client, dynamic: dynamicClient,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
	}, nil
}

// applyParallel is how many objects are applied side by side. The API server
// works on each of the larger definitions for most of a second.
const applyParallel = 4

// apply applies objects with server-side apply, in no order. An object whose
// kind or webhook is not served yet is retried until ctx ends.
func (c *cluster) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(applyParallel)
	for _, object := range objects {
		group.Go(func() error {
			err := retry(ctx, func() error {
				resource, err := c.resource(object)
				if err != nil {
					return err
				}
				_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
				return err
			})
			if err != nil {
				return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// tryCreate creates an object as a dry run, so that every webhook that would
// see it answers.
func (c *cluster) tryCreate(ctx context.Context, object *unstructured.Unstructured) error {
	err := retry(ctx, func() error {
		resource, err := c.resource(object)
		if err != nil {
			return err
		}
		_, err = resource.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if err != nil {
		return fmt.Errorf("trying to create a %s: %w", object.GetKind(), err)
	}
	return nil
}

func (c *cluster) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		// The kind may be served since the mapper last looked.
		c.mapper.Reset()
		return nil, err
	}
	resource := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return resource.Namespace(namespace), nil
	}
	return resource, nil
}

// retry repeats a call that failed because something is not served yet. The
// API server is new: its discovery, webhooks and authorizers lag behind by
// seconds. An object that is refused as invalid is refused at once.
func retry(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// awaitEstablished waits until the definitions among objects are served.
func (c *cluster) awaitEstablished(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != kindCRD {
			continue
		}
		err := retry(ctx, func() error {
			current, err := c.dynamic.Resource(definitionResource).Get(ctx, object.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !established(current) {
				return errors.New("not established")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the definition %s: %w", object.GetName(), err)
		}
	}
	return nil
}

func established(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Established" {
			return condition["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}

// serviceAccountToken asks the API server for a token of a service account, bound to
// that object if there is one.
func (c *cluster) serviceAccountToken(ctx context.Context, namespace, name string, bound *authenticationv1.BoundObjectReference) (string, error) {
	seconds := tokenSeconds
	var token string
	err := retry(ctx, func() error {
		request, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: bound}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		token = request.Status.Token
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("asking for a token of service account %s/%s: %w", namespace, name, err)
	}
	return token, nil
}

// writeKubeconfig writes a kubeconfig for one bearer of a token.
func writeKubeconfig(path, server string, ca []byte, user, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: user}
	config.CurrentContext = "sandbox"
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig of %s: %w", user, err)
	}
	return writeFile(path, content, 0o600)
}
