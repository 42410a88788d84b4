package check

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// release is a version of Kubernetes, Metacontroller or Quorate.
type release struct{ major, minor, patch int }

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r.major, r.minor, r.patch) }

// before reports whether it is older than a minor version.
func (r release) before(major, minor int) bool {
	return cmp.Or(cmp.Compare(r.major, major), cmp.Compare(r.minor, minor)) < 0
}

var releaseForm = regexp.MustCompile(`^v?(\d+)\.(\d+)(?:\.(\d+))?`)

// releaseOf reads what begins like v1.36.3, 1.5.20 or 4.16; false for anything else.
func releaseOf(text string) (release, bool) {
	m := releaseForm.FindStringSubmatch(text)
	if m == nil {
		return release{}, false
	}
	var numbers [3]int
	for i := range numbers {
		numbers[i], _ = strconv.Atoi(cmp.Or(m[i+1], "0"))
	}
	return release{numbers[0], numbers[1], numbers[2]}, true
}

// kubernetes: 1.29 is the first whose CEL has functions for quantities, which the kinds' validation rules use; 1.30 the
// first that serves ValidatingAdmissionPolicies without being told to; 1.36 is what the tests run on.
func kubernetes(s *Seen) Finding {
	r, known := releaseOf(s.server)
	switch {
	case !known:
		return warn(fmt.Sprintf("the API server reports %q, which is not a version", s.server), "see that it is "+
			"Kubernetes 1.29 or later")
	case r.before(1, 29):
		return fail(fmt.Sprintf("%s; Quorate's kinds need 1.29 at least", r), "upgrade Kubernetes")
	case r.before(1, 30):
		return warn(fmt.Sprintf("%s has no ValidatingAdmissionPolicies, so deletions of what is protected are not "+
			"refused",
			r), "upgrade Kubernetes to 1.30 or later")
	case !r.before(1, 37):
		return ok("%s; newer than 1.36, which the tests run on", r)
	}
	return ok("%s", r)
}

// workload is a StatefulSet or a Deployment.
type workload struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replicas *int32                 `json:"replicas"`
		Template corev1.PodTemplateSpec `json:"template"`
		Selector *metav1.LabelSelector  `json:"selector"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		ReadyReplicas      int32 `json:"readyReplicas"`
		AvailableReplicas  int32 `json:"availableReplicas"`
		UpdatedReplicas    int32 `json:"updatedReplicas"`
	} `json:"status"`
}

func (w workload) wanted() int32 {
	if w.Spec.Replicas == nil {
		return 1
	}
	return *w.Spec.Replicas
}

func (w workload) title() string { return w.Kind + " " + w.Metadata.Namespace + "/" + w.Metadata.Name }

// runsMetacontroller tells it by its label, its service account or its image: official manifests, the Helm chart and
// others differ.
func (w workload) runsMetacontroller() bool {
	return w.Metadata.Labels[nameLabel] == "metacontroller" ||
		w.Spec.Template.Spec.ServiceAccountName == "metacontroller" ||
		strings.Contains(containerOf(&w).Image, "metacontroller")
}

// containerOf is the container that matters: the one whose image is Metacontroller's, or the first.
func containerOf(w *workload) corev1.Container {
	all := w.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(all, func(c corev1.Container) bool {
		return strings.Contains(c.Image, "metacontroller")
	}); i >= 0 {
		return all[i]
	}
	if len(all) == 0 {
		return corev1.Container{}
	}
	return all[0]
}

// flag is the value of a flag of a container's command line: --name=value, --name value or, for true, --name. Empty
// when it is not there.
func flag(c corev1.Container, name string) string {
	line := slices.Concat(c.Command, c.Args)
	for i, word := range line {
		own, value, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case !strings.HasPrefix(word, "-") || own != name:
		case assigned:
			return value
		case i+1 < len(line) && !strings.HasPrefix(line[i+1], "-"):
			return line[i+1]
		default:
			return "true"
		}
	}
	return ""
}

// metacontroller is the workload in its namespace; nil when there is none.
func (s *Seen) metacontroller() *workload {
	i := slices.IndexFunc(s.inNamespace, workload.runsMetacontroller)
	if i < 0 {
		return nil
	}
	return &s.inNamespace[i]
}

// podsOf are the pods that a workload's selector chooses, the newest first.
func (s *Seen) podsOf(w *workload) []corev1.Pod {
	if w == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(w.Spec.Selector)
	if err != nil {
		return nil
	}
	var all []corev1.Pod
	for _, p := range s.pods {
		if selector.Matches(labelSet(p.Labels)) && p.DeletionTimestamp == nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all,
		func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return all
}

func metacontrollerRuns(s *Seen) Finding {
	w := s.metacontroller()
	if w == nil {
		return fail(s.elsewhere())
	}
	if w.Status.ReadyReplicas == 0 || w.Status.ReadyReplicas < w.wanted() {
		return fail(fmt.Sprintf("%s: %d of %d ready", w.title(), w.Status.ReadyReplicas, w.wanted()),
			command("kubectl -n %s describe pods", s.Metacontroller)+" shows why; until then Metacontroller does not "+
				"call Quorate, and failed members stay down")
	}
	return ok("%s, %d of %d ready", w.title(), w.Status.ReadyReplicas, w.wanted())
}

// elsewhere says that there is no Metacontroller where it should be, and where one is.
func (s *Seen) elsewhere() (found, do string) {
	found = "no Metacontroller in namespace " + s.Metacontroller
	for _, w := range s.labelled {
		if w.Metadata.Namespace != s.Metacontroller {
			return found + "; there is " + w.title(),
				"say so: --metacontroller-namespace=" + w.Metadata.Namespace + " (for `quorate install`, too)"
		}
	}
	return found, "install one: " + s.install() + "; or say with --metacontroller-namespace where it is"
}

func oneMetacontroller(s *Seen) Finding {
	all := slices.Clone(s.labelled)
	for _, w := range s.inNamespace {
		if w.runsMetacontroller() &&
			!slices.ContainsFunc(all, func(o workload) bool { return o.title() == w.title() }) {
			all = append(all, w)
		}
	}
	all = slices.DeleteFunc(all, func(w workload) bool { return w.wanted() == 0 })
	var flaws []Finding
	var serve, others []string
	for _, w := range all {
		if s.serves(w) {
			serve = append(serve, w.title())
		} else {
			others = append(others, w.title())
			continue
		}
		if elects := flag(containerOf(&w), "leader-election"); w.wanted() > 1 && (elects == "" || elects == "false") {
			flaws = append(flaws, fail(fmt.Sprintf("%s has %d replicas and no --leader-election: all of them act at "+
				"once",
				w.title(), w.wanted()),
				command("kubectl -n %s scale %s/%s --replicas=1", w.Metadata.Namespace, strings.ToLower(w.Kind),
					w.Metadata.Name)+", or set --leader-election (Metacontroller 4)"))
		}
	}
	switch {
	case len(all) == 0:
		return unchecked(aMetacontroller.lacks)
	case len(serve) == 0:
		flaws = append(flaws, fail("none serves Quorate's CompositeControllers: the --target-label-selector of "+
			strings.Join(others, ", ")+" does not match their labels", s.install()))
	case len(serve) > 1:
		flaws = append(flaws, fail("several serve Quorate's CompositeControllers, and undo each other's work: "+
			strings.Join(serve, ", "), "remove all but one; or if others need that too, give it "+
			"--target-label-selector=!"+
			ofInstallation+" (Metacontroller 4)"))
	case len(others) > 0:
		return together(ok("%s; %s serves others", serve[0], strings.Join(others, ", ")), flaws)
	}
	return together(ok("it is the only one, with one active replica"), flaws)
}

// Others are the Metacontrollers in a list of StatefulSets and Deployments, as kubectl prints it, that would serve the
// CompositeControllers of the Quorate in this namespace, and run elsewhere: what they are called, and where they are.
func Others(list []byte, namespace string) (titles, namespaces []string) {
	var all struct{ Items []workload }
	if objects.Read(list, &all) != nil {
		return nil, nil
	}
	for _, w := range all.Items {
		if w.Metadata.Namespace != namespace && w.wanted() > 0 &&
			w.selects(labels.Set{ofInstallation: namespace, partOf: "quorate"}) {
			titles = append(titles, w.title())
			namespaces = append(namespaces, w.Metadata.Namespace)
		}
	}
	return titles, namespaces
}

// selects reports whether a Metacontroller looks after CompositeControllers with these labels.
func (w workload) selects(of labels.Set) bool {
	selector, err := labels.Parse(flag(containerOf(&w), "target-label-selector"))
	return err != nil || selector.Matches(of) // with an error it does not start, which is said elsewhere
}

// serves reports whether a Metacontroller looks after Quorate's CompositeControllers, by their labels.
func (s *Seen) serves(w workload) bool {
	ours := s.ours()
	if len(ours) == 0 {
		return w.selects(labels.Set{ofInstallation: s.Namespace})
	}
	return slices.ContainsFunc(ours, func(c controller) bool { return w.selects(c.Metadata.Labels) })
}

// metacontrollerVersion is that of the image's tag or, where that tells none, of the label that the Helm chart sets.
func (s *Seen) metacontrollerVersion() (release, bool) {
	w := s.metacontroller()
	if w == nil {
		return release{}, false
	}
	if r, known := releaseOf(tag(containerOf(w).Image)); known {
		return r, true
	}
	return releaseOf(w.Metadata.Labels["app.kubernetes.io/version"])
}

// tag of an image; empty when it has none.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, after, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !found {
		return ""
	}
	return after
}

// repository of an image, without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	return strings.TrimSuffix(image, ":"+tag(image))
}

// What is known: 4.17.2 and 1.5.20 by runs of the tests; what lies between them and from 4.16 on by documentation and
// sources. From 4.16 on a webhook has a token from a Secret; 1.5 can have one as the password of the hook's URL. 2.0 to
// 4.15 show that URL as a label of their metrics, so they can't prove who they are.
func metacontrollerVersion(s *Seen) Finding {
	r, known := s.metacontrollerVersion()
	switch {
	case !known:
		return warn("the image "+containerOf(s.metacontroller()).Image+" does not tell its version",
			"see that it is 4.16 or later")
	case r.before(1, 5):
		return fail(r.String()+" is older than 1.5 and does not support what Quorate's CompositeControllers need",
			"upgrade Metacontroller to 4.16 or later")
	case r == release{4, 17, 2}:
		return ok("%s, which the tests run with", r)
	case r == release{1, 5, 20}:
		return ok("%s, which tests run with too", r)
	case r.before(2, 0):
		return warn(r.String()+" was never tried; 4.17.2 is what the tests run with",
			"upgrade Metacontroller to 4.16 or "+
				"later")
	case r.before(4, 16):
		return warn(r.String()+" can't send a token without showing it in its metrics: only the NetworkPolicy keeps "+
			"others away from the hooks", "upgrade Metacontroller to 4.16 or later ("+v1beta1.Docs+"explanation/security.md)")
	case r.before(5, 0):
		return ok("%s has what is needed, by its documentation; the tests run with 4.17.2 "+
			"("+v1beta1.Docs+"reference/versions.md)", r)
	}
	return warn(r.String()+" is newer than any that is known here", "try it where nothing depends on it first")
}
