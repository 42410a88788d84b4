// cert-manager in one binary: its controllers, its webhook, and its CA injector, as the first argument says. Its own
// main packages are in modules that no proxy serves, so these few lines put the same parts together. Of the issuers,
// SelfSigned and CA are in it. The name of this module is what lets it import cert-manager's internal packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	webhookconfig "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
	cmscheme "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/util"

	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
)

// namespace is where lab cert-manager installs it.
const namespace = "cert-manager"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctrl.SetLogger(klog.NewKlogr())
	ctx = klog.NewContext(ctx, klog.NewKlogr())
	parts := map[string]func(context.Context) error{"controller": runController, "webhook": runWebhook, "cainjector": runInjector}
	var part func(context.Context) error
	if len(os.Args) == 2 {
		part = parts[os.Args[1]]
	}
	err := errors.New("usage: cert-manager controller|webhook|cainjector")
	if part != nil {
		err = part(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// runController runs every controller that is linked in. There is one replica, so there is no election.
func runController(ctx context.Context) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: namespace},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	common, err := factory.Build()
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	for name, construct := range controller.Known() {
		made, err := construct(factory)
		if err != nil {
			return fmt.Errorf("the controller %s: %w", name, err)
		}
		running.Go(func() error { return made.Run(5, ctx) })
	}
	common.SharedInformerFactory.Start(ctx.Done())
	common.KubeSharedInformerFactory.Start(ctx.Done())
	return running.Wait()
}

// runWebhook serves admission on 10250, health on 6080, with a certificate that it makes by itself.
func runWebhook(ctx context.Context) error {
	host := "cert-manager-webhook." + namespace
	server, err := webhook.NewCertManagerWebhookServer(klog.FromContext(ctx), webhookconfig.WebhookConfiguration{
		SecurePort: 10250, HealthzPort: 6080, MetricsListenAddress: "0",
		TLSConfig: shared.TLSConfig{Dynamic: shared.DynamicServingConfig{
			SecretNamespace: namespace, SecretName: "cert-manager-webhook-ca",
			DNSNames:     []string{"cert-manager-webhook", host, host + ".svc"},
			LeafDuration: 7 * 24 * time.Hour,
		}},
	})
	if err != nil {
		return err
	}
	return server.Run(ctx)
}

// runInjector puts the webhook's authority into its configurations.
func runInjector(ctx context.Context) error {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, cmscheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme} {
		if err := add(known); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(config, "cainjector"), ctrl.Options{
		Scheme: known, Metrics: metricsserver.Options{BindAddress: "0"},
		// The injector hears of a Secret by a watch of metadata. A cache of whole Secrets is another watch, which may
		// not have the Secret yet: then the injector gives up, and no event comes again.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{EnabledReconcilersFor: map[string]bool{
		cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
	}})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}
