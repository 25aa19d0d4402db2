package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// trust sets the caBundle of every webhook of the configuration and says
// whether it had to change one. The patch holds for the version that was read
// only: a replica that has not seen a new certificate yet must not put back the
// old trust.
func (k *Keeper) trust(ctx context.Context, config *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) (bool, error) {
	type clientConfig struct {
		CABundle []byte `json:"caBundle"`
	}
	type webhook struct {
		Name         string       `json:"name"` // the list's merge key
		ClientConfig clientConfig `json:"clientConfig"`
	}
	var wrong []webhook
	for i := range config.Webhooks {
		if !bytes.Equal(config.Webhooks[i].ClientConfig.CABundle, bundle) {
			wrong = append(wrong, webhook{Name: config.Webhooks[i].Name, ClientConfig: clientConfig{CABundle: bundle}})
		}
	}
	if len(wrong) == 0 {
		return false, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": config.ResourceVersion},
		"webhooks": wrong,
	})
	if err != nil {
		return false, fmt.Errorf("encoding the caBundle's patch: %w", err)
	}
	if _, err := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(
		ctx, config.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return false, fmt.Errorf("setting the caBundle of MutatingWebhookConfiguration %s: %w", config.Name, err)
	}
	klog.FromContext(ctx).Info("Set the caBundle", "configuration", config.Name, "webhooks", len(wrong))
	return true, nil
}
