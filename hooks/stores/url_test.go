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

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestStoreURLs: what ParseURL takes, and what it refuses.
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
	assert.Equal(t, "in s3://b", u.Words())
	assert.Equal(t, "on the claim", Words("file:///a/b"))
	assert.Equal(t, "at a URL that can't be used", Words("s3://b/$(tls.key)"))
}

// apiRules are the patterns of a declaration of the API, by its fields: what follows matches( in a rule, or Pattern=.
func apiRules(t *testing.T, declaration string) map[string]*regexp.Regexp {
	t.Helper()
	text, err := os.ReadFile("../api/v1beta1/snapshot.go")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "\ntype "+declaration+" struct {\n")
	require.True(t, found)
	body, _, _ := strings.Cut(after, "\n}\n")
	rules := map[string]*regexp.Regexp{}
	for _, field := range strings.Split(body, "\n\n") {
		name := regexp.MustCompile(`(?m)^\t(\w+) `).FindStringSubmatch(field)
		rule := regexp.MustCompile("matches\\('([^']*)'\\)|Pattern=`([^`]*)`").FindStringSubmatch(field)
		if rule != nil {
			rules[name[1]] = regexp.MustCompile(rule[1] + rule[2])
		}
	}
	return rules
}

// TestTheAPIAdmitsWhatCanBeUsed: of random stores, those that the rules of the API take have a URL that can be used,
// and it leads where the store says, by no other parameters.
func TestTheAPIAdmitsWhatCanBeUsed(t *testing.T) {
	s3, azure := apiRules(t, "S3Store"), apiRules(t, "AzureStore")
	require.Len(t, s3, 5)
	require.Len(t, azure, 3)
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"b", "a", "/", ".", "..", ":", ",", "-", "_", "=", "+", "@", "~", ".json", "%", "%2F", "$", " ", "#",
		"'", "*", "\n", "ü", "//", "?", "&", "https://", "http://", "minio_1", "[::1]", ":9000", "arn:aws:kms/", "shop", "eu-1"}
	taken := 0
	text := func(rule *regexp.Regexp) string {
		for {
			var all strings.Builder
			for range r.IntN(6) {
				all.WriteString(pieces[r.IntN(len(pieces))])
			}
			// MaxLength is not what this is about
			if rule.MatchString(all.String()) {
				return all.String()
			}
		}
	}
	perhaps := func(rule *regexp.Regexp) string {
		if r.IntN(2) == 0 {
			return ""
		}
		return text(rule)
	}
	for range 3_000 {
		store := v1beta1.Store{S3: &v1beta1.S3Store{Bucket: text(s3["Bucket"]), Prefix: perhaps(s3["Prefix"]),
			Region: perhaps(s3["Region"]), Endpoint: perhaps(s3["Endpoint"]), KMSKeyID: perhaps(s3["KMSKeyID"])}}
		if store.S3.KMSKeyID != "" {
			store.S3.ServerSideEncryption = "aws:kms"
		}
		if r.IntN(3) == 0 {
			store = v1beta1.Store{Azure: &v1beta1.AzureStore{Container: text(azure["Container"]),
				Prefix: perhaps(azure["Prefix"]), StorageAccount: perhaps(azure["StorageAccount"])}}
		}
		require.NoError(t, Validate("spec.store", &store), "%+v", store)
		want := URLOf(&store)
		u, err := ParseURL(want.String())
		require.NoError(t, err)
		require.Equal(t, want, u)
		if store.S3 != nil {
			require.Equal(t, store.S3.Endpoint, u.Parameter("endpoint"))
			require.Equal(t, store.S3.Region, u.Parameter("region"))
		}
		artifact := strings.TrimSuffix("x/"+text(s3["Prefix"]), "/")
		if !strings.HasSuffix(artifact, RecordSuffix) {
			require.NoError(t, ValidateSource("s", &v1beta1.SnapshotSource{Artifact: artifact, Store: &store}))
			require.Equal(t, artifact, ArtifactIn(&store, want.Join(artifact).String()))
		}
		taken++
	}
	require.Equal(t, 3_000, taken)
}

// TestFoldersOfStores: the URL of each kind of store, and what is refused though the API server let it through.
func TestFoldersOfStores(t *testing.T) {
	for want, store := range map[string]v1beta1.Store{
		"s3://b": {S3: &v1beta1.S3Store{Bucket: "b"}},
		"s3://b/f?region=any&endpoint=https://minio:9000&use_path_style=true": {S3: &v1beta1.S3Store{Bucket: "b",
			Prefix: "f", Region: "any", Endpoint: "https://minio:9000", ForcePathStyle: true}},
		"s3://b?ssetype=aws:kms&kmskeyid=arn:aws:kms:eu:1:key/2": {S3: &v1beta1.S3Store{Bucket: "b",
			ServerSideEncryption: "aws:kms", KMSKeyID: "arn:aws:kms:eu:1:key/2"}},
		"s3://b?request_checksum_calculation=when_required&response_checksum_validation=when_required": {
			S3: &v1beta1.S3Store{Bucket: "b", Checksums: v1beta1.ChecksumsWhenRequired}},
		"gs://b/f": {GCS: &v1beta1.GCSStore{Bucket: "b", Prefix: "f"}},
		"azblob://c?storage_account=shop&domain=blob.core.chinacloudapi.cn": {Azure: &v1beta1.AzureStore{Container: "c",
			StorageAccount: "shop", Cloud: v1beta1.AzureChina}},
		"azblob://c?domain=blob.core.usgovcloudapi.net": {Azure: &v1beta1.AzureStore{Container: "c",
			Cloud: v1beta1.AzureUSGovernment}},
		"azblob://c": {Azure: &v1beta1.AzureStore{Container: "c", Cloud: v1beta1.AzurePublic}},
		"file:///":   {Claim: &v1beta1.ClaimStore{Name: "backups"}},
		"file:///f":  {Claim: &v1beta1.ClaimStore{Name: "backups", Path: "f"}},
	} {
		require.NoError(t, Validate("spec.store", &store), want)
		assert.Equal(t, want, URLOf(&store).String())
	}
	for _, bad := range []v1beta1.Store{{}, {Claim: &v1beta1.ClaimStore{Path: "f"}},
		{S3: &v1beta1.S3Store{Bucket: "b"}, GCS: &v1beta1.GCSStore{Bucket: "b"}},
		{S3: &v1beta1.S3Store{Bucket: "b", KMSKeyID: "k"}},
		{S3: &v1beta1.S3Store{Bucket: "b", KMSKeyID: "k", ServerSideEncryption: "AES256"}},
		{S3: &v1beta1.S3Store{Bucket: "b", Endpoint: "https://me:secret@minio"}}} {
		err := Validate("spec.store", &bad)
		require.ErrorContains(t, err, "spec.store")
		assert.NotContains(t, err.Error(), "secret@")
	}
	require.Error(t, ValidateSource("s", &v1beta1.SnapshotSource{Artifact: "x.db"}), "without a store")
	folder := v1beta1.Store{S3: &v1beta1.S3Store{Bucket: "b", Prefix: "f"}}
	for url, want := range map[string]string{"s3://b/f/x/y.db?region=a": "x/y.db", "s3://b/fx/y": "", "s3://c/f/y": "",
		"gs://b/f/y": "", "?": ""} {
		assert.Equal(t, want, ArtifactIn(&folder, url), url)
	}
}
