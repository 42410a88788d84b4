package stores

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Schemes of stores.
const (
	S3     = "s3"
	Google = "gs"
	Azure  = "azblob"
	Claim  = "file"
)

// URL is the URL of a folder in a store, or of an artifact in one. It holds no secret, and
// nothing by which a request would go to someone a secret is not meant for.
type URL struct {
	// Scheme is one of S3 and its like.
	Scheme string
	// Bucket, or container; empty on a claim.
	Bucket string
	// Path in it, without a slash at either end; empty for none.
	Path string
	// Parameters by which the store is reached, as they are written; empty for none.
	Parameters string
}

// grammar is how the URLs of stores look. The rules of Store.URL and SnapshotSource.URL in the API
// are made of the same parts.
var grammar = sync.OnceValue(func() (g struct {
	place      *regexp.Regexp
	parameters map[string]*regexp.Regexp
}) {
	const (
		// Anything but dots alone; and it does not end in two, since gocloud.dev stores what comes
		// after ../ under another name.
		segment = `[.]*[-_0-9A-Za-z=+@~:,]+(?:[.]+[-_0-9A-Za-z=+@~:,]+)*[.]?`
		colon   = `(:|%3[Aa])`
		slash   = `(/|%2[Ff])`
		host    = `([0-9A-Za-z][-._0-9A-Za-z]*|(\[|%5[Bb])([0-9A-Fa-f.]|` + colon + `)+(\]|%5[Dd]))`
		address = `https?` + colon + slash + slash + host + `(` + colon + `[0-9]{1,5})?(` + slash + `[-._~0-9A-Za-z]*)*`
	)
	some := func(parameters ...string) *regexp.Regexp {
		one := "(" + strings.Join(parameters, "|") + ")"
		return regexp.MustCompile("^" + one + "(&" + one + ")*$")
	}
	g.place = regexp.MustCompile(`^((?:s3|gs|azblob)://[0-9A-Za-z][-._0-9A-Za-z]*|file://)((?:/` + segment + `)*)(/?)$`)
	g.parameters = map[string]*regexp.Regexp{
		S3: some(
			`region=[-0-9A-Za-z]{1,64}`, `endpoint=`+address,
			`(use_path_style|disable_https)=(true|false)`,
			`ssetype=(AES256|aws`+colon+`kms(`+colon+`dsse)?)`, `kmskeyid=([-_0-9A-Za-z]|`+colon+`|`+slash+`)+`,
			`(request_checksum_calculation|response_checksum_validation)=when_(supported|required)`),
		Azure: some(`storage_account=[0-9a-z]{3,24}`,
			`domain=blob[.]core[.](windows[.]net|chinacloudapi[.]cn|usgovcloudapi[.]net)`),
	}
	return g
})

// urlWords is what a user is told who wrote another URL. What they wrote is not repeated.
const urlWords = "it must look like s3://bucket/folder, gs://bucket/folder, azblob://container/folder or " +
	"file:///folder, with only letters, digits and -._=+@~:, and no name that ends in two dots"

// ParseURL takes the URL of a store, or of an artifact, apart. The error says what is wrong
// and repeats nothing of the URL: that may hold what should not have been written there.
func ParseURL(text string) (URL, error) {
	place, parameters, given := strings.Cut(text, "?")
	parts := grammar().place.FindStringSubmatch(place)
	if parts == nil || len(text) > 1024 {
		return URL{}, errors.New(urlWords)
	}
	if parts[1] == "file://" && parts[2] == "" && parts[3] == "" {
		return URL{}, errors.New(urlWords)
	}
	u := URL{Path: strings.TrimPrefix(parts[2], "/"), Parameters: parameters}
	u.Scheme, u.Bucket, _ = strings.Cut(parts[1], "://")
	if known := grammar().parameters[u.Scheme]; given && (known == nil || !known.MatchString(parameters)) {
		return URL{}, errors.New(parameterWords[u.Scheme])
	}
	return u, nil
}

// RecordSuffix makes the name of an artifact that of its record.
const RecordSuffix = ".json"

// ContentsSuffix makes it that of the account of what fills its database, in the same form as the artifact.
const ContentsSuffix = ".contents"

// ParseArtifactURL takes the URL of an artifact apart.
func ParseArtifactURL(text string) (URL, error) {
	u, err := ParseURL(text)
	if err == nil && (u.Path == "" || strings.HasSuffix(u.Path, RecordSuffix)) {
		err = errors.New(artifactWords)
	}
	return u, err
}

// artifactWords is what is said of a URL of something else in a store.
const artifactWords = "it names no artifact: an artifact has a name in the bucket or on the claim, and that name " +
	"does not end in .json"

// parameterWords say which parameters a store takes.
var parameterWords = map[string]string{
	S3: "of parameters it takes region, endpoint (http:// or https://, a host, and a port), use_path_style, " +
		"disable_https (true or false), " +
		"ssetype, kmskeyid, request_checksum_calculation and response_checksum_validation (when_supported or " +
		"when_required), and no others",
	Azure: "of parameters it takes storage_account and domain, which is blob.core.windows.net, " +
		"blob.core.chinacloudapi.cn or blob.core.usgovcloudapi.net, and no others",
	Google: "it takes no parameters",
	Claim:  "it takes no parameters",
}

// Parameter is the value of a parameter as it is written, with %3A for a colon, say; empty for
// none. Of several the first counts.
func (u URL) Parameter(name string) string {
	for pair := range strings.SplitSeq(u.Parameters, "&") {
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value
		}
	}
	return ""
}

// Join is the URL of what has this name in the folder, with the folder's parameters.
func (u URL) Join(name string) URL {
	u.Path = strings.Trim(u.Path+"/"+name, "/")
	return u
}

// Split is the folder of an artifact, and its name.
func (u URL) Split() (folder URL, name string) {
	slash := strings.LastIndexByte(u.Path, '/')
	folder = u
	name = u.Path[slash+1:]
	folder.Path = u.Path[:max(slash, 0)]
	return folder, name
}

// String is the URL. It is for the status and for programs; messages have Words.
func (u URL) String() string {
	text := u.Scheme + "://" + u.Bucket
	if u.Path != "" || u.Bucket == "" {
		text += "/" + u.Path
	}
	if u.Parameters != "" {
		text += "?" + u.Parameters
	}
	return text
}

// Words say where something is, for messages, and no more than that: "in s3://bucket", or "on the
// claim".
func (u URL) Words() string {
	if u.Scheme == Claim {
		return "on the claim"
	}
	return "in " + u.Scheme + "://" + u.Bucket
}

// Words are those of a URL, whatever it is.
func Words(url string) string {
	u, err := ParseURL(url)
	if err != nil {
		return "at a URL that can't be used"
	}
	return u.Words()
}

// credential is a key of a Secret with credentials, and the variable of a container that gets its
// value.
type credential struct {
	key string
	// optional: a Secret may lack it.
	optional bool
}

// credentials are all keys of a Secret that a container gets, by the scheme of the store. Google's
// is a file: googleKey.
func credentials(u URL) []credential {
	switch u.Scheme {
	case S3:
		return []credential{{"AWS_ACCESS_KEY_ID", false}, {"AWS_SECRET_ACCESS_KEY", false}, {"AWS_SESSION_TOKEN", true}}
	case Azure:
		return []credential{
			{"AZURE_STORAGE_ACCOUNT", u.Parameter("storage_account") != ""}, {"AZURE_STORAGE_KEY", true},
			{"AZURE_STORAGE_SAS_TOKEN", true},
			{"AZURE_TENANT_ID", true}, {"AZURE_CLIENT_ID", true}, {"AZURE_CLIENT_SECRET", true},
		}
	}
	return nil
}

// CredentialVariables are the names of all variables by which containers get credentials of stores.
func CredentialVariables() []string {
	var all []string
	for _, scheme := range []string{S3, Azure} {
		for _, c := range credentials(URL{Scheme: scheme}) {
			all = append(all, c.key)
		}
	}
	return append(all, googleVariable)
}

// URLOf is the URL of a store's folder.
func URLOf(s *v1beta1.Store) URL {
	var parameters []string
	with := func(name, value string) {
		if value != "" {
			parameters = append(parameters, name+"="+value)
		}
	}
	yes := map[bool]string{true: "true"}
	u := URL{}
	switch {
	case s.S3 != nil:
		u = URL{Scheme: S3, Bucket: s.S3.Bucket, Path: s.S3.Prefix}
		with("region", s.S3.Region)
		with("endpoint", s.S3.Endpoint)
		with("use_path_style", yes[s.S3.ForcePathStyle])
		with("ssetype", s.S3.ServerSideEncryption)
		with("kmskeyid", s.S3.KMSKeyID)
		if s.S3.Checksums == v1beta1.ChecksumsWhenRequired {
			with("request_checksum_calculation", "when_required")
			with("response_checksum_validation", "when_required")
		}
	case s.GCS != nil:
		u = URL{Scheme: Google, Bucket: s.GCS.Bucket, Path: s.GCS.Prefix}
	case s.Azure != nil:
		u = URL{Scheme: Azure, Bucket: s.Azure.Container, Path: s.Azure.Prefix}
		with("storage_account", s.Azure.StorageAccount)
		with("domain", map[v1beta1.AzureCloud]string{v1beta1.AzureChina: "blob.core.chinacloudapi.cn",
			v1beta1.AzureUSGovernment: "blob.core.usgovcloudapi.net"}[s.Azure.Cloud])
	case s.Claim != nil:
		u = URL{Scheme: Claim, Path: s.Claim.Path}
	}
	u.Parameters = strings.Join(parameters, "&")
	return u
}

// ArtifactIn is the name of an artifact below the store's prefix; empty where it is not in the store, or the URL can't
// be read.
func ArtifactIn(s *v1beta1.Store, url string) string {
	artifact, err := ParseURL(url)
	if err != nil {
		return ""
	}
	folder := URLOf(s)
	if artifact.Scheme != folder.Scheme || artifact.Bucket != folder.Bucket {
		return ""
	}
	if folder.Path == "" {
		return artifact.Path
	}
	name, in := strings.CutPrefix(artifact.Path, folder.Path+"/")
	if !in {
		return ""
	}
	return name
}

// Validate says what is wrong with a store. The API server refuses it, too.
func Validate(field string, s *v1beta1.Store) error {
	kinds := 0
	for _, set := range []bool{s.S3 != nil, s.GCS != nil, s.Azure != nil, s.Claim != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("%s is not exactly one of s3, gcs, azure and claim", field)
	}
	if s.S3 != nil && s.S3.KMSKeyID != "" && !strings.HasPrefix(s.S3.ServerSideEncryption, "aws:kms") {
		return fmt.Errorf("%s.s3.kmsKeyID needs %s.s3.serverSideEncryption aws:kms or aws:kms:dsse", field, field)
	}
	if s.Claim != nil && s.Claim.Name == "" {
		return fmt.Errorf("%s.claim.name is empty: name a PersistentVolumeClaim", field)
	}
	if _, err := ParseURL(URLOf(s).String()); err != nil {
		return fmt.Errorf("%s is not one that can be used: as a URL %w", field, err)
	}
	return nil
}

// ValidateSource says what is wrong with a snapshot that a spec names.
func ValidateSource(field string, s *v1beta1.SnapshotSource) error {
	if s == nil {
		return nil
	}
	if s.Store != nil {
		if err := Validate(field+".store", s.Store); err != nil {
			return err
		}
	}
	if s.Artifact != "" {
		if s.Store == nil {
			return fmt.Errorf("%s.artifact needs %s.store: where it is", field, field)
		}
		if _, err := ParseArtifactURL(URLOf(s.Store).Join(s.Artifact).String()); err != nil {
			return fmt.Errorf("%s.artifact is not one that can be used: as a URL %w", field, err)
		}
	}
	return nil
}
