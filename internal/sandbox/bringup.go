package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-gpu/muster/internal/simulator"
)

// bringUpTime bounds everything from the first process to Ready.
const bringUpTime = 5 * time.Minute

// identities are the users of the token file: the administrator and the parts
// of the control plane that have no service account.
var identities = []struct{ who, user, group string }{
	{"admin", "admin", "system:masters"},
	{componentControllerManager, "system:kube-controller-manager", ""},
	{componentKubeScheduler, "system:kube-scheduler", ""},
	{componentSimulator, simulator.UserName, ""},
	{componentCoscheduling, coschedulingUser, ""},
}

// account is the service account under which a component runs.
type account struct{ component, namespace, name string }

// bringUp starts the components in the order of their needs and says on
// progress what became ready.
type bringUp struct {
	*setup
	children *children
	progress func(string)
	cluster  *cluster
}

func (b *bringUp) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bringUpTime)
	defer cancel()
	if err := b.writeIdentities(); err != nil {
		return err
	}
	// Rendering the manifests takes about as long as etcd and the API server
	// do, and needs neither.
	var upstream, muster []*unstructured.Unstructured
	rendering, _ := errgroup.WithContext(ctx)
	rendering.Go(func() (err error) { upstream, err = loadUpstream(b.options); return err })
	if b.options.Has(WithScheduler) || b.options.Has(WithWebhook) || b.options.Has(WithGPUAgent) {
		rendering.Go(func() (err error) { muster, err = loadMuster(b.options); return err })
	}
	if err := b.writeAuditPolicy(); err != nil {
		return err
	}
	etcd := b.etcdProgram()
	if err := b.start(ctx, etcd); err != nil {
		return err
	}
	if err := b.start(ctx, b.apiServerProgram(etcd.ports["serving"])); err != nil {
		return err
	}
	if err := rendering.Wait(); err != nil {
		return err
	}
	if err := b.connect(); err != nil {
		return err
	}
	ours, theirs := stage(muster), stage(upstream)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.start(groupCtx, b.controllerManagerProgram()) })
	group.Go(func() error { return b.startNodes(groupCtx) })
	group.Go(func() error { return b.applyDefinitions(groupCtx, theirs, ours) })
	if err := group.Wait(); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for _, begin := range b.parts(theirs, ours) {
		group.Go(func() error { return begin(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return b.finish(ctx, theirs)
}

// parts lists how to begin each chosen part. The ports are drawn here, before
// anything runs side by side.
func (b *bringUp) parts(theirs, ours stages) []func(context.Context) error {
	var begin []func(context.Context) error
	add := func(part string, build func() (program, error), who *account, webhooks, definitions []*unstructured.Unstructured, ca []byte) {
		if !b.options.Has(part) {
			return
		}
		p, err := build()
		begin = append(begin, func(ctx context.Context) error {
			if err != nil {
				return err
			}
			return b.startPart(ctx, p, who, webhooks, definitions, ca)
		})
	}
	add(WithJobSet, b.jobSetProgram, &account{componentJobSet, "jobset-system", "jobset-controller-manager"},
		webhooksOf(theirs, "jobset"), nil, b.ca.pem)
	add(WithTrainer, b.trainerProgram, &account{componentTrainer, "kubeflow-system", "kubeflow-trainer-controller-manager"},
		webhooksOf(theirs, "trainer"), nil, b.ca.pem)
	add(WithTrainingOperator, b.trainingOperatorProgram, &account{componentTrainingOperator, trainingOperatorNamespace, trainingOperatorAccount},
		webhooksOf(theirs, "training-operator"), nil, b.ca.pem)
	begin = append(begin, b.beginKueue(theirs)...)
	begin = append(begin, b.beginCoscheduling()...)
	add(WithScheduler, b.musterSchedulerProgram, &account{componentMusterScheduler, musterNamespace, componentMusterScheduler}, nil, nil, nil)
	add(WithWebhook, b.musterWebhookProgram, &account{componentMusterWebhook, musterNamespace, componentMusterWebhook}, ours.webhooks, ours.definitions, nil)
	begin = append(begin, b.beginGPUAgents()...)
	add(WithKubeScheduler, b.kubeSchedulerProgram, nil, nil, nil, nil)
	return begin
}

// webhooksOf picks the webhook configurations whose name contains part.
func webhooksOf(s stages, part string) []*unstructured.Unstructured {
	var picked []*unstructured.Unstructured
	for _, object := range s.webhooks {
		if strings.Contains(object.GetName(), part) {
			picked = append(picked, object)
		}
	}
	return picked
}

// start runs one program and waits until it serves.
func (b *bringUp) start(ctx context.Context, p program) error {
	began := time.Now()
	if err := b.children.start(p); err != nil {
		return err
	}
	if err := b.children.awaitReady(ctx, p.name); err != nil {
		return err
	}
	b.progress(fmt.Sprintf("%s is ready (%.1f s)", p.name, time.Since(began).Seconds()))
	return nil
}

// startPart gives a component its identity, registers its webhooks and the
// conversion of those definitions that have one, and starts it. A webhook program
// that patches its own certificate into its registration needs to find one, so the
// registration comes first.
func (b *bringUp) startPart(ctx context.Context, p program, who *account, webhooks, definitions []*unstructured.Unstructured, ca []byte) error {
	if who != nil {
		token, err := b.cluster.serviceAccountToken(ctx, who.namespace, who.name, nil)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(b.identity(who.component), b.server, b.ca.pem, who.name, token); err != nil {
			return err
		}
	}
	for _, configuration := range webhooks {
		if err := pointWebhooks(configuration, p.ports["webhook"], ca); err != nil {
			return err
		}
	}
	var converted []*unstructured.Unstructured
	for _, object := range definitions {
		if pointConversion(object, p.ports["webhook"], ca) {
			converted = append(converted, object)
		}
	}
	if err := b.cluster.apply(ctx, append(converted, webhooks...)); err != nil {
		return err
	}
	return b.start(ctx, p)
}

// writeIdentities writes the certificates, keys, tokens and kubeconfigs.
func (b *bringUp) writeIdentities() error {
	if err := writeFile(b.pki("ca.crt"), b.ca.pem, 0o600); err != nil {
		return err
	}
	// Whoever holds the key of this one may speak for any user; it is dropped.
	frontProxy, err := newAuthority()
	if err != nil {
		return err
	}
	if err := writeFile(b.pki("front-proxy-ca.crt"), frontProxy.pem, 0o600); err != nil {
		return err
	}
	if err := b.ca.issue(componentAPIServer, b.certDir(componentAPIServer)); err != nil {
		return err
	}
	if err := writeServiceAccountKeys(b.pki("sa.key"), b.pki("sa.pub")); err != nil {
		return err
	}
	var tokens strings.Builder
	for _, identity := range identities {
		token := newToken()
		fmt.Fprintf(&tokens, "%s,%s,%s", token, identity.user, identity.who)
		if identity.group != "" {
			fmt.Fprintf(&tokens, ",%s", identity.group)
		}
		tokens.WriteByte('\n')
		path := b.identity(identity.who)
		if identity.who == "admin" {
			path = b.kubeconfig()
		}
		if err := writeKubeconfig(path, b.server, b.ca.pem, identity.user, token); err != nil {
			return err
		}
	}
	return writeFile(b.pki("tokens.csv"), []byte(tokens.String()), 0o600)
}

func (b *bringUp) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", b.kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	b.cluster, err = newCluster(config)
	return err
}

// applyDefinitions applies everything that needs no running controller.
func (b *bringUp) applyDefinitions(ctx context.Context, all ...stages) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began, count := time.Now(), 0
	for _, s := range all {
		if err := b.cluster.apply(ctx, s.definitions); err != nil {
			return err
		}
		count += len(s.definitions)
	}
	for _, s := range all {
		if err := b.cluster.awaitEstablished(ctx, s.definitions); err != nil {
			return err
		}
	}
	for _, s := range all {
		if err := b.cluster.apply(ctx, s.rest); err != nil {
			return err
		}
		count += len(s.rest)
	}
	if count > 0 {
		b.progress(fmt.Sprintf("%d definitions and permissions are in place (%.1f s)", count, time.Since(began).Seconds()))
	}
	return nil
}

// permit allows a user of the token file what the rules say, by a role of that
// name.
func (b *bringUp) permit(ctx context.Context, user, name string, rules []rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	applying, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if _, err := b.cluster.client.RbacV1().ClusterRoles().Create(applying, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the role %s: %w", name, err)
	}
	if _, err := b.cluster.client.RbacV1().ClusterRoleBindings().Create(applying, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the role %s: %w", name, err)
	}
	return nil
}

// startNodes gives the simulator its permissions and starts it.
func (b *bringUp) startNodes(ctx context.Context) error {
	if err := b.permit(ctx, simulator.UserName, simulator.UserName, simulator.PolicyRules()); err != nil {
		return err
	}
	if err := b.start(ctx, b.simulatorProgram()); err != nil {
		return err
	}
	b.progress(fmt.Sprintf("%d nodes with %d GPUs each are Ready", b.options.Nodes, b.options.GPUsPerNode))
	return nil
}

// finish creates the training runtimes, and lets every webhook answer once.
func (b *bringUp) finish(ctx context.Context, theirs stages) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.cluster.apply(ctx, theirs.runtimes); err != nil {
		return err
	}
	// Pods of a namespace without its default service account are refused.
	err := retry(ctx, func() error {
		_, err := b.cluster.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return b.children.complaint(componentControllerManager, fmt.Sprintf("did not create the default service account: %v", err))
	}
	for part, object := range map[string]*unstructured.Unstructured{
		WithJobSet: probeJobSet(), WithTrainer: probeTrainJob(), WithKueue: probeFlavor(),
		WithTrainingOperator: probePyTorchJob(),
	} {
		if !b.options.Has(part) {
			continue
		}
		if err := b.cluster.tryCreate(ctx, object); err != nil {
			return b.children.complaint(part, fmt.Sprintf("does not answer its webhooks: %v", err))
		}
	}
	return nil
}

// probeJobSet and probeTrainJob are created as dry runs only.
func probeJobSet() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"name": "sandbox-probe", "namespace": metav1.NamespaceDefault},
		"spec": map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "node", "template": map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"restartPolicy": "Never", "containers": []any{map[string]any{"name": "node", "image": "probe"}},
			}}}},
		}}},
	}}
}

func probeTrainJob() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"name": "sandbox-probe", "namespace": metav1.NamespaceDefault},
		"spec":     map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}},
	}}
}
