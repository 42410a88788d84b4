package stores

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStoreURLs: a test of the manifests has the same URLs judged by the API server's rules.
func TestStoreURLs(t *testing.T) {
	var urls struct{ Good, Folders, Bad []string }
	raw, err := os.ReadFile("testdata/urls.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &urls))
	for _, artifact := range urls.Good {
		_, err := ParseArtifactURL(artifact)
		require.NoError(t, err, artifact)
	}
	for _, folder := range urls.Folders {
		_, err := ParseArtifactURL(folder)
		require.Error(t, err, folder)
	}
	for _, good := range slices.Concat(urls.Good, urls.Folders) {
		u, err := ParseURL(good)
		require.NoError(t, err, good)
		assert.Equal(t, strings.TrimSuffix(strings.Replace(good, "/?", "?", 1), "/"),
			strings.TrimSuffix(u.String(), "/"), good)
		again, err := ParseURL(u.String())
		require.NoError(t, err, good)
		assert.Equal(t, u, again)
		folder, name := u.Join("shop/demo.db.zst").Split()
		assert.Equal(t, "demo.db.zst", name)
		assert.Equal(t, u.Join("shop"), folder)
	}
	for _, bad := range urls.Bad {
		_, err := ParseURL(bad)
		require.Error(t, err, bad)
		for _, word := range []string{"secret", "$", "evil", "passwd", "KEY"} {
			assert.NotContains(t, err.Error(), word, "nothing of the URL is repeated")
		}
	}
	u, err := ParseURL("s3://b/folder?region=one&endpoint=http://x&region=two")
	require.NoError(t, err)
	assert.Equal(t, "one", u.Parameter("region"))
	assert.Equal(t, "http://x", u.Parameter("endpoint"))
	assert.Empty(t, u.Parameter("fips"))
	assert.Equal(t, "in s3://b", u.Words())
	assert.Equal(t, "on the claim", Words("file:///a/b"))
	assert.Equal(t, "at a URL that can't be used", Words("s3://b/$(tls.key)"))
}

// apiRules are the expressions of CEL's matches(self) in the markers before a declaration of the API, by what they
// are of: "self" or a field. One with a "!" before it must not match.
func apiRules(t *testing.T, file, declaration string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../api/v1alpha1/" + file)
	require.NoError(t, err)
	before, _, found := strings.Cut(string(text), declaration)
	require.True(t, found)
	rules := map[string][]string{}
	for _, rule := range regexp.MustCompile(`(!?)(self[.a-z]*)\.matches\('([^']*)'\)`).FindAllStringSubmatch(before[strings.LastIndex(before, "\n\n"):], -1) {
		rules[rule[2]] = append(rules[rule[2]], rule[1]+rule[3])
	}
	return rules
}

// admits reports whether all of these rules take a text.
func admits(rules []string, text string) bool {
	for _, rule := range rules {
		expression, forbids := strings.CutPrefix(rule, "!")
		if celExpression(expression).MatchString(text) == forbids {
			return false
		}
	}
	return len(text) <= 1024 // MaxLength
}

var celExpressions = map[string]*regexp.Regexp{}

// celExpression is compiled once. CEL's are Go's.
func celExpression(text string) *regexp.Regexp {
	if celExpressions[text] == nil {
		celExpressions[text] = regexp.MustCompile(text)
	}
	return celExpressions[text]
}

// TestTheAPIAdmitsWhatCanBeUsed: of random URLs, the rules of the API and these functions take the same, and what is
// taken is the same when it is written and read once more.
func TestTheAPIAdmitsWhatCanBeUsed(t *testing.T) {
	ofStore, ofArtifact := apiRules(t, "snapshot.go", "\ntype URL string")["self"],
		apiRules(t, "epoch.go", "\ntype SnapshotSource struct")["self.url"]
	require.Len(t, ofStore, 2)
	require.Len(t, ofArtifact, 2)
	begins := []string{"s3://", "gs://", "azblob://", "file://", "file:///", "s3:///", "http://", "s3:"}
	path := []string{"b", "/", "/", "a", ".", "..", ":", ",", "-", "_", "=", "+", "@", "~", ".json", ".db", "x.attrs",
		"%", "%2F", "$", " ", "#", "'", "*", "\n", "ü", "//"}
	query := []string{"?", "?", "&", "&", "region=eu-west-1", "region=", "endpoint=http://", "endpoint=https%3A%2f/",
		"minio_1", "_", ".json", "[::1]", "%5b::1%5D", ":9000", ":", "/", "x", ".",
		"use_path_style=true", "fips=1", "kmskeyid=arn:aws:kms/", "ssetype=aws:kms", "storage_account=shop",
		"domain=blob.core.windows.net", "domain=evil", "=", "%3a", "$(X)"}
	r := rand.New(rand.NewPCG(1, 2))
	some := func(from []string, most int) string {
		var text strings.Builder
		for range r.IntN(most + 1) {
			text.WriteString(from[r.IntN(len(from))])
		}
		return text.String()
	}
	taken, artifacts := 0, 0
	for range 300_000 {
		begin := begins[r.IntN(len(begins))]
		if r.IntN(3) > 0 {
			begin += "b"
		}
		text := begin + some(path, 6)
		if r.IntN(2) == 0 {
			text += "?" + some(query, 6)
		}
		u, err := ParseURL(text)
		require.Equal(t, admits(ofStore, text), err == nil, "%q: %v", text, err)
		_, noArtifact := ParseArtifactURL(text)
		require.Equal(t, admits(ofStore, text) && admits(ofArtifact, text), noArtifact == nil, "%q: %v", text,
			noArtifact)
		if err != nil {
			continue
		}
		taken++
		require.True(t, admits(ofStore, u.String()), "%q is written %q", text, u)
		again, err := ParseURL(u.String())
		require.NoError(t, err, text)
		require.Equal(t, u, again)
		if noArtifact == nil {
			artifacts++
			folder, name := u.Split()
			require.Equal(t, u, folder.Join(name), text)
		}
	}
	assert.Greater(t, taken, 10_000)
	assert.Greater(t, artifacts, 5_000)
}
