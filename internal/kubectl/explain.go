package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// A Call is a call of Metacontroller's as Quorate reads it.
type Call interface {
	// Observation is what the call says, without etcd's answers.
	Observation(now time.Time, s observation.Settings) observation.Observation
	// Secret is what a Secret of the call holds; nil for none of this name.
	Secret(name string) map[string][]byte
	// Answer is the body that Quorate would answer with; finalized is nil unless the hook finalize is answered.
	Answer(d decision.Decision, finalized *bool) ([]byte, error)
}

// Explaining is the plugin with what explain and report ask: how Quorate reads a call, and what it answers. The plugin
// itself is a client and knows nothing of the server.
func Explaining[C Call](p *Program, read func(ctx context.Context, body io.Reader) (C, error)) *Program {
	p.read = func(ctx context.Context, body io.Reader) (Call, error) { return read(ctx, body) }
	return p
}

// unread is what a program without Explaining reads of calls.
func unread(context.Context, io.Reader) (Call, error) {
	return nil, errors.New("this program was built without what Quorate reads of calls")
}

// explain asks the hooks what they would do now.
func (a *invocation) explain(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	e, err := a.explanation(ctx, c)
	if err != nil {
		return err
	}
	e.print(a.Out)
	return nil
}

// explanation is what the hooks would do about one call.
type explanation struct {
	at    time.Time
	o     observation.Observation
	d     decision.Decision
	live  *live
	notes []string
	// broken says which rules of safety the decision breaks; unanswered why there would be no answer.
	broken, unanswered error
	changes            []change
	same               int
	finalizing         bool
	finalized          bool
}

func (a *invocation) explanation(ctx context.Context, c *found) (*explanation, error) {
	body, notes, err := a.callFor(ctx, c)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	asked, err := a.read(ctx, bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("a call about EtcdCluster %s/%s would be refused: %w",
			c.Namespace,
			c.Name, err)
	}
	settings, note := a.settings(ctx, body)
	if note == "" {
		note = otherVersion(a.Version, settings.Image)
	}
	if note != "" {
		notes = append(notes, note)
	}
	e := &explanation{at: a.now(), notes: notes, o: asked.Observation(a.now(), settings), finalizing: body.Finalizing}
	if e.o.Settings.ClusterDomain == "" {
		e.o.Settings.ClusterDomain = domainOf(e.o)
	}
	if err := e.decide(ctx, a, asked); err != nil {
		return nil, err
	}
	var answer []byte
	if answer, e.unanswered = asked.Answer(e.d, nil); e.unanswered == nil {
		e.changes, e.same, err = changes(body.objects(), answer, string(c.UID))
	}
	return e, err
}

// decide observes etcd and asks the hooks once; a cluster that is being deleted is not asked about.
func (e *explanation) decide(ctx context.Context, a *invocation, asked Call) error {
	if e.finalizing && defaults.Protected(e.o.Cluster) {
		e.finalizing = false
		e.notes = append(e.notes, "its deletion waits for spec.deletionProtection to be false; until then Quorate "+
			"runs it as before")
	}
	if e.finalizing && facts.Leaving(e.o) {
		e.finalizing = false
		e.notes = append(e.notes, "its deletion waits until its members have left the etcd that they joined, or you "+
			"remove spec.bootstrap")
	}
	if e.finalizing {
		e.d.Children, e.finalized = answer.Finalize(e.o)
		e.d.Status = e.o.Cluster.Status
		return nil
	}
	own, err := etcdops.OwnOf(e.o.Cluster, asked.Secret)
	if err != nil { // the decision says so, too
		e.notes = append(e.notes, fmt.Sprintf("the Secret %s with Quorate's certificate can't be used: %s",
			objects.OperatorSecret(e.o.Cluster), err))
	}
	endpoints := facts.Endpoints(e.o)
	ways := a.open(ctx, e.o.Cluster.Namespace, endpoints)
	defer ways.close()
	e.live = ways.observe(ctx, a.etcd(own, ways.dial), endpoints)
	e.o.Etcd = e.live.etcd
	e.o.Health = e.live.health
	e.d = hooks.Decide(e.o)
	e.broken = hooks.Verify(e.o, e.d)
	return nil
}

func (e *explanation) print(w io.Writer) {
	p := page{w}
	c := e.o.Cluster
	fmt.Fprintf(w, "%s in namespace %s, as the hooks would decide at %s. Nothing is carried out.\n", c.Name,
		c.Namespace,
		e.at.UTC().Format(time.RFC3339))
	e.printCaveats(p)
	if e.finalizing {
		p.section("DELETION")
		p.say(fmt.Sprintf("The cluster is being deleted, so no rule is asked. Quorate lets it go: %s.",
			yes(e.finalized)))
	} else {
		e.printRules(p)
		p.section("SAYS")
		p.say(e.d.Reason.Rule + ": " + e.d.Reason.Message)
		e.printStep(p)
	}
	e.printChildren(p)
	if !e.finalizing {
		p.section("ASKS AGAIN")
		p.say(again(e.d.ResyncAfter))
		p.section("SAFETY")
		p.say(verdict(e.broken))
	}
}

func (e *explanation) printCaveats(p page) {
	list := e.notes
	if e.live != nil && e.live.etcd == nil && len(facts.Endpoints(e.o)) > 0 {
		list = append(list, "No quorum answered this machine, so this is a decision without etcd. Quorate decides "+
			"otherwise if it reaches the members: compare with STATUS.")
	}
	if e.live != nil {
		for _, endpoint := range facts.Endpoints(e.o) {
			if h := e.live.health[endpoint.Name]; h.Err != "" {
				list = append(list, fmt.Sprintf("%s did not answer: %s", endpoint.Name, h.Err))
			}
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("KEEP IN MIND")
	for _, words := range list {
		p.point(words)
	}
}

// printRules lists the rules of the mode up to the one that applies.
func (e *explanation) printRules(p page) {
	modes := rules.Modes
	mode := modes[slices.IndexFunc(modes, func(m rules.Mode) bool { return m.Name == e.d.Mode })]
	p.section("MODE")
	p.say(mode.Name + ". " + mode.Why)
	p.section("RULES, IN ORDER")
	var passed []string
	for _, r := range mode.Rules {
		if r.Name != e.d.Reason.Rule {
			passed = append(passed, r.Name)
			continue
		}
		if len(passed) > 0 {
			p.say(fmt.Sprintf("%d do not apply: %s", len(passed), strings.Join(passed, ", ")))
		}
		p.say(fmt.Sprintf("%d. %s applies. %s", len(passed)+1, r.Name, r.Why))
		return
	}
}

func (e *explanation) printStep(p page) {
	p.section("STEP IN ETCD")
	if e.d.Step == nil {
		p.say("none")
		return
	}
	p.say(fmt.Sprintf("%s (not carried out; Quorate would look again after it, and answer what is right then)",
		e.d.Step))
}

func (e *explanation) printChildren(p page) {
	p.section("OBJECTS IN KUBERNETES")
	if e.unanswered != nil {
		p.say(fmt.Sprintf("There would be no answer, and so no change: %s", e.unanswered))
		return
	}
	var lines [][]string
	for _, c := range e.changes {
		lines = append(lines, c.lines()...)
	}
	if len(lines) > 0 {
		p.table(lines)
	}
	p.say("Objects that would stay as they are: " + fmt.Sprint(e.same))
}

func again(after time.Duration) string {
	if after == 0 {
		return "when something changes, and with the resync period of the CompositeController (30 s)"
	}
	return fmt.Sprintf("after %s at the latest", after)
}

func verdict(broken error) string {
	if broken == nil {
		return "The decision breaks none of the rules of safety (" + v1beta1.Docs + "explanation/safety.md)."
	}
	return "THE DECISION BREAKS RULES OF SAFETY. With --verify Quorate withholds it. Please report this, with `kubectl " +
		"quorate report`: " +
		strings.ReplaceAll(broken.Error(), "\n", "; ")
}

// settings of the installation, as its Deployment has them; else what the pods tell, with a word about it.
func (a *invocation) settings(ctx context.Context, body *call) (observation.Settings, string) {
	if c, err := a.server(ctx); err == nil {
		return settingsIn(c, a.quorate), ""
	}
	s := observation.Settings{Images: objects.Images{Image: body.image(), EtcdRepository: body.etcdRepository()},
		Namespace: a.quorate}
	return s, fmt.Sprintf("Quorate's Deployment in namespace %s can't be read, so its settings are a guess from the "+
		"members' pods (image %q); "+
		"another namespace is named by --quorate-namespace", a.quorate, s.Image)
}

// otherVersion says that this plugin may decide otherwise than the Quorate with this image; empty when both are of one
// version, or the image does not tell.
func otherVersion(version, image string) string {
	own, _, _ := strings.Cut(version, " ")
	tagged, _, _ := strings.Cut(image, "@")
	colon := strings.LastIndex(tagged, ":")
	if colon <= strings.LastIndex(tagged, "/") || tagged[colon+1:] == own {
		return ""
	}
	return fmt.Sprintf("this plugin is %s and Quorate's image is %s; what follows is what the plugin's own rules say, "+
		"so use the plugin of Quorate's version", own, image)
}

// domainOf is the domain of the Kubernetes cluster by the members' certificate: the server takes it from its own pod's
// resolv.conf. Empty for none.
func domainOf(o observation.Observation) string {
	s := o.Children.Secrets[defaults.ServerSecret(o.Cluster)]
	if s == nil || s.Certificate == nil {
		return ""
	}
	for _, name := range s.Certificate.Names {
		if domain, is := strings.CutPrefix(name, objects.Host(o.Cluster, "*")+"."); is {
			return domain
		}
	}
	return ""
}

func settingsIn(c *corev1.Container, namespace string) observation.Settings {
	s := observation.Settings{Images: objects.Images{Image: c.Image}}
	for _, e := range c.Env {
		switch e.Name {
		case "QUORATE_IMAGE":
			s.Image = e.Value
		case "QUORATE_IMAGE_PULL_POLICY":
			s.ImagePullPolicy = corev1.PullPolicy(e.Value)
		case "QUORATE_ETCD_REPOSITORY":
			s.EtcdRepository = e.Value
		case "QUORATE_ALLOWED_IMAGE_REPOSITORIES":
			if e.Value != "" {
				s.AllowedRepositories = strings.Split(e.Value, ",")
			}
		case "QUORATE_ALLOWED_ETCD_ENDPOINTS":
			// the server does not start with one that can't be read
			s.AllowedEndpoints, _ = objects.ParseAllowedEndpoints(e.Value)
		case "QUORATE_CLUSTER_DOMAIN":
			s.ClusterDomain = e.Value
		case "QUORATE_RECORD_KEYS":
			s.Keyed = e.Value != ""
		case "QUORATE_SHARED_ISSUERS":
			s.SharedIssuers, _ = strconv.ParseBool(e.Value)
		case "QUORATE_NAMESPACE":
			s.Namespace = e.Value
			if e.ValueFrom != nil {
				s.Namespace = namespace
			}
		}
	}
	return s
}
