// Package browser looks at the page of `kubectl quorate ui` in a Chromium, while `make try` plays Kubernetes and real
// etcds run. It is skipped where there is no Chromium.
package browser

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/gif"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// within which everything appears, on a busy machine too.
const within = 3 * time.Minute

// try is `make try` on a terminal, without its tour.
type try struct {
	t    *testing.T
	keys *os.File
	lock sync.Mutex
	said bytes.Buffer
}

func start(t *testing.T) *try {
	t.Helper()
	program := filepath.Join(t.TempDir(), "try")
	build := exec.Command("go", "build", "-o", program, "./test/real/try")
	build.Dir = "../../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.Command(program, "--no-tour", "--ui")
	cmd.Dir = build.Dir
	s := &try{t: t}
	s.keys, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 400})
	require.NoError(t, err)
	copied := make(chan struct{})
	go func() { defer close(copied); _, _ = io.Copy(s, s.keys) }()
	t.Cleanup(func() {
		s.types("quit")
		_ = cmd.Wait()
		_ = s.keys.Close()
		<-copied
	})
	return s
}

// Write takes what the program prints.
func (s *try) Write(text []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.said.Write(text)
}

func (s *try) until(pattern string) string {
	s.t.Helper()
	found := ""
	require.Eventually(s.t, func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		found = regexp.MustCompile(pattern).FindString(s.said.String())
		return found != ""
	}, within, 50*time.Millisecond, "%s", pattern)
	return found
}

func (s *try) types(line string) {
	_, err := io.WriteString(s.keys, line+"\r")
	assert.NoError(s.t, err)
}

// tab is one of the browser. What goes wrong in it is in troubles.
type tab struct {
	context.Context
	t        *testing.T
	lock     sync.Mutex
	troubles []string
	answers  map[string]string // instead of the server's, by the end of the path
}

func open(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("there is no Chromium")
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.WSURLReadTimeout(within)}
	for _, flag := range []string{"disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage"} {
		options = append(options, chromedp.Flag(flag, true))
	}
	allocated, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocated)
	t.Cleanup(end)
	b := &tab{Context: ctx, t: t, answers: map[string]string{}}
	require.NoError(t, chromedp.Listen(ctx, b.heard))
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	call(b, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: "*/api/stored*"},
		{URLPattern: "*/api/contents*"}}})
	return b
}

func (b *tab) heard(event any) {
	b.lock.Lock()
	defer b.lock.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded: // with violations of the Content-Security-Policy
		b.troubles = append(b.troubles, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *runtime.EventExceptionThrown:
		b.troubles = append(b.troubles, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		b.troubles = append(b.troubles, fmt.Sprintf("console.%s", e.Type))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "http://127.0.0.1:") {
			b.troubles = append(b.troubles, "it asks for "+e.Request.URL)
		}
	case *fetch.EventRequestPaused:
		kind, _, _ := strings.Cut(filepath.Base(e.Request.URL), "?")
		go func(answer string) {
			if answer == "" {
				call(b, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
				return
			}
			call(b, fetch.FulfillRequest, fetch.FulfillRequestParams{RequestID: e.RequestID, ResponseCode: 200,
				Body:            []byte(answer),
				ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "application/json"}}})
		}(b.answers[kind])
	}
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	result, err := chromedp.Call(b, command, params)
	if b.Err() == nil {
		assert.NoError(b.t, err)
	}
	return result
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b, actions...))
}

func (b *tab) wide(width int64) { b.do(chromedp.EmulateViewport(width, 900)) }

// get is what a script comes to.
func get[T any](b *tab, script string) T {
	b.t.Helper()
	value, err := chromedp.Run(b, chromedp.Evaluate[T](script))
	require.NoError(b.t, err, script)
	return value
}

// until waits for what a script tells.
func (b *tab) until(script string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return get[bool](b, script) }, within, 50*time.Millisecond, "%s\n%s", script,
		get[string](b, "document.body.innerText"))
}

// calm is a page on which nothing has gone wrong, and that is as wide as its window.
func (b *tab) calm() {
	b.t.Helper()
	b.lock.Lock()
	defer b.lock.Unlock()
	assert.Empty(b.t, b.troubles)
}

func (b *tab) fits() {
	b.t.Helper()
	assert.LessOrEqual(b.t, get[int](b, "document.documentElement.scrollWidth"), get[int](b, "innerWidth"))
}

// accessible: each control has a name, and the keyboard reaches it.
func (b *tab) accessible() {
	b.t.Helper()
	controls := 0
	for _, node := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		switch role {
		case "button", "slider", "radio", "link", "region", "navigation", "image", "list":
			controls++
			named := node.Name != nil && strings.Trim(string(node.Name.Value), `" `) != ""
			assert.True(b.t, named || role == "list" || role == "image" && node.Name != nil, "a %s has no name", role)
		}
	}
	assert.Greater(b.t, controls, 15)
	all := get[int](b, `reachable = [...document.querySelectorAll('a, button, input, summary, [tabindex="0"]')].filter(e =>
		!e.disabled && e.checkVisibility() && (e.type !== 'radio' || e.checked)), document.body.focus(),
		document.activeElement.blur(), reachable.length`)
	for range all + 5 {
		b.do(chromedp.KeyEvent(kb.Tab))
		get[int](b, "(reachable = reachable.filter(e => e !== document.activeElement)).length")
	}
	left := get[[]string](b, "reachable.filter(e => e.isConnected).map(e => e.outerHTML.slice(0, 100))")
	assert.Empty(b.t, left, "Tab does not lead there")
}

// picture writes one for the documents, if that is asked for.
func (b *tab) picture(name string) {
	if os.Getenv("QUORATE_REWRITE") == "" {
		return
	}
	raw, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	picture, err := png.Decode(bytes.NewReader(raw))
	require.NoError(b.t, err)
	file, err := os.Create("../../../docs/pictures/ui-" + name + ".png")
	require.NoError(b.t, err)
	defer func() { _ = file.Close() }()
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(file, picture))
}

// recording has something happen and writes down what is seen of it until a script tells the end, if pictures are asked
// for: as many frames as there can be, of each what has changed.
func (b *tab) recording(name string, happens func(), end string) {
	if os.Getenv("QUORATE_REWRITE") == "" {
		happens()
		return
	}
	b.wide(900)
	defer b.wide(1280)
	film, last, shown := gif.GIF{}, b.frame(), time.Now()
	film.Image = append(film.Image, last)
	happens()
	for over, began := 0, time.Now(); over < 4 && time.Since(began) < within; {
		if get[bool](b, end) {
			over++
		}
		frame := b.frame()
		changed := differs(last, frame)
		if changed.Empty() {
			continue
		}
		film.Delay = append(film.Delay, int(time.Since(shown)/(10*time.Millisecond)))
		film.Image = append(film.Image, frame.SubImage(changed).(*image.Paletted))
		last, shown = frame, time.Now()
	}
	film.Delay = append(film.Delay, 400)
	file, err := os.Create("../../../docs/pictures/ui-" + name + ".gif")
	require.NoError(b.t, err)
	defer func() { _ = file.Close() }()
	require.NoError(b.t, gif.EncodeAll(file, &film))
}

// frame is the upper part of what is seen.
func (b *tab) frame() *image.Paletted {
	raw, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	seen, err := png.Decode(bytes.NewReader(raw))
	require.NoError(b.t, err)
	frame := image.NewPaletted(image.Rect(0, 0, 900, 620), palette.WebSafe)
	draw.Draw(frame, frame.Rect, seen, image.Point{}, draw.Src)
	return frame
}

// differs is the smallest rectangle outside of which both are the same.
func differs(a, b *image.Paletted) image.Rectangle {
	var all image.Rectangle
	for i := range a.Pix {
		if a.Pix[i] != b.Pix[i] {
			x, y := i%a.Stride, i/a.Stride
			all = all.Union(image.Rect(x, y, x+1, y+1))
		}
	}
	return all
}

func (b *tab) dark(is string) {
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: is}}})
}

const (
	serving = `document.querySelector('#status').textContent === 'Converged' &&
		document.querySelectorAll('.member:not(.away):not(.gone)').length === 3`
	replaced = serving + " && document.querySelector('#members').textContent.includes('demo-3')"
	stored   = `{"data": {"snapshots": [
		{"name": "nightly-1", "time": %[1]q, "phase": "Succeeded", "verified": true, "restorable": true, "revision": 1204133,
			"size": 214958080, "message": ""},
		{"name": "nightly-2", "time": %[2]q, "phase": "Failed", "verified": false, "restorable": false, "revision": 0,
			"size": 0, "message": "<img src=x onerror=alert(1)>"},
		{"name": "nightly-3", "time": %[3]q, "phase": "Succeeded", "verified": true, "restorable": true, "revision": 1391007,
			"size": 220200960, "message": ""}],
		"streams": [{"name": "nightly", "from": %[1]q, "to": %[4]q, "runs": true, "message": "stores what changes"}]}}`
	hostile  = `<img src=x onerror=alert(1)>`
	contents = `{"data": {"time": %[1]q, "from": %[1]q, "to": %[2]q, "notes": [], "prefixes": [
		{"prefix": "/registry/events/", "keys": 48211, "bytes": 93214212, "writes": 9130},
		{"prefix": "/registry/pods/", "keys": 3120, "bytes": 41231042, "writes": 0},
		{"prefix": "/registry/configmaps/", "keys": 1411, "bytes": 30212042, "writes": 0},
		{"prefix": "/registry/secrets/", "keys": 2210, "bytes": 14212042, "writes": 0},
		{"prefix": "/registry/leases/", "keys": 5120, "bytes": 9212042, "writes": 61210},
		{"prefix": "/registry/replicasets/", "keys": 1820, "bytes": 8112042, "writes": 0},
		{"prefix": "/registry/apiextensions.k8s.io/", "keys": 210, "bytes": 7512042, "writes": 0},
		{"prefix": "/registry/endpointslices/", "keys": 811, "bytes": 4212042, "writes": 0},
		{"prefix": "/registry/deployments/", "keys": 702, "bytes": 3212042, "writes": 0},
		{"prefix": "<img src=x onerror=alert(1)>", "keys": 90, "bytes": 1212042, "writes": 0}]}}`
)

// TestPage: a newcomer makes a cluster, loses a member of it and looks back.
func TestPage(t *testing.T) {
	b := open(t)
	s := start(t)
	ago := func(hours int) string {
		return time.Now().Add(time.Duration(-hours) * time.Hour).UTC().Format(time.RFC3339)
	}
	b.answers["stored"] = fmt.Sprintf(stored, ago(50), ago(26), ago(2), ago(0))
	b.answers["contents"] = fmt.Sprintf(contents, ago(2), ago(1))
	b.wide(1280)
	b.dark("light")
	b.do(chromedp.Navigate(s.until(`http://127\.0\.0\.1:\S+token=\S+`)))
	b.until("document.querySelector('#trouble').textContent.includes('no EtcdCluster')")
	s.types("apply")
	b.until(serving)
	assert.NotContains(t, get[string](b, "location.href"), "token")
	assert.Empty(t, get[string](b, "document.cookie"), "no script reads the token")
	b.until("document.querySelectorAll('.member.leads').length === 1")
	b.until("document.querySelectorAll('#members tr').length === 4")
	assert.Regexp(t, `demo-\d leads, serves`,
		get[string](b, "document.querySelector('#drawing').getAttribute('aria-label')"))

	b.recording("loss", func() { s.types("lose demo-1") }, replaced)
	b.until(replaced)

	b.until("history && history.moments.some(m => m.cluster.members.some(m => m.role === 'Learner'))")
	b.do(chromedp.Focus("#slider"), chromedp.KeyEvent(kb.Home))
	b.until("document.querySelector('#moment').textContent.includes('ago') && at === 0")
	assert.NotEqual(t, "Converged", get[string](b, "document.querySelector('#status').textContent"))
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	b.until("at === 1")
	get[int](b, "go(history.moments.findLastIndex(m => m.cluster.members.some(m => m.role === 'Learner'))), at")
	b.until("document.querySelectorAll('.member.learner:not(.gone)').length === 1")
	b.until("getComputedStyle(document.querySelector('.member.learner')).opacity === '1' && !drawing.moving")
	get[int](b, "document.activeElement.blur(), scrollTo(0, 0), 0")
	b.picture("loss")
	b.do(chromedp.Click("#explain"))
	b.until("document.querySelector('#explanation').textContent.includes('STATUS')")
	assert.Contains(t, get[string](b, "document.querySelector('#explained').textContent"),
		"kubectl quorate history demo --at=")
	b.fits()
	b.do(chromedp.Click("#live"), chromedp.Click("#explain"))
	b.until("document.querySelector('#explanation').textContent.includes('none of the rules of safety')")

	assert.Contains(t, get[string](b, "document.querySelector('#restore').textContent"),
		"kubectl quorate restore demo --until=latest --dry-run -n default")
	b.do(chromedp.Focus("#until"), chromedp.KeyEvent(kb.PageDown))
	b.until("/--until=[0-9T:-]+Z/.test(document.querySelector('#restore').textContent)")
	assert.Equal(t, 10, get[int](b, "document.querySelectorAll('#treemap rect').length"))
	b.do(chromedp.Click("input[value=writes]"))
	assert.Equal(t, "The largest: /registry/leases/ 61210 writes, /registry/events/ 9130 writes",
		get[string](b, "document.querySelector('#treemap').getAttribute('aria-label')"))
	b.do(chromedp.Click("input[value=bytes]"))
	get[int](b, "document.querySelectorAll('details').forEach(d => { d.open = true; }), 0")
	for _, node := range []string{"#snapshots", "#prefixes"} {
		assert.Contains(t, get[string](b, "document.querySelector('"+node+"').textContent"), hostile)
	}
	assert.Zero(t, get[int](b, "document.querySelectorAll('#one img').length"))
	b.accessible()
	b.fits()
	get[int](b, "document.querySelectorAll('details').forEach(d => { d.open = false; }), 0")
	b.dark("dark")
	get[int](b, "$('explanation').hidden = true, $('events').scrollTop = 0, $('history').scrollIntoView(), 0")
	b.picture("dark")
	b.wide(390)
	b.until("document.querySelector('#drawing').viewBox.baseVal.width < 390")
	b.fits()
	b.accessible()
	b.calm()
}

// TestLab looks at a page that leads to a real Kubernetes, with one cluster that has a verified snapshot and a stream.
// It is for TestPage of test/real/e2e.
func TestLab(t *testing.T) {
	page := os.Getenv("QUORATE_PAGE")
	if page == "" {
		t.Skip("QUORATE_PAGE is no address of a page")
	}
	b := open(t)
	b.wide(1280)
	b.do(chromedp.Navigate(page))
	b.until(serving)
	b.until("document.querySelectorAll('.member.leads').length === 1")
	b.until("document.querySelectorAll('#treemap rect').length > 0")
	for _, by := range []string{"keys", "writes"} {
		b.do(chromedp.Click("input[value=" + by + "]"))
		assert.Contains(t, get[string](b, "document.querySelector('#treemap').getAttribute('aria-label')"), "/registry/pods/")
	}
	assert.Contains(t, get[string](b, "document.querySelector('#restore').textContent"), "kubectl quorate restore demo")
	b.recording("lab", func() {
		out, err := exec.Command("sh", "-c", os.Getenv("QUORATE_LOSES")).CombinedOutput()
		require.NoError(t, err, string(out))
	}, replaced)
	b.until(replaced)
	b.until("history && history.moments.some(m => m.cluster.members.some(m => m.role === 'Learner'))")
	get[int](b, "go(history.moments.findLastIndex(m => m.cluster.members.some(m => m.role === 'Learner'))), at")
	b.until("document.querySelectorAll('.member.learner:not(.gone)').length === 1")
	b.do(chromedp.Click("#explain"))
	b.until("document.querySelector('#explanation').textContent.includes('STATUS')")
	b.accessible()
	b.fits()
	b.wide(390)
	b.until("document.querySelector('#drawing').viewBox.baseVal.width < 390")
	b.fits()
	b.calm()
}
