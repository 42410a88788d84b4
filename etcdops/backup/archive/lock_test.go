package archive

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// recorder is a server that speaks as much of S3 as an upload needs, and keeps each request that may change something.
// Its objects are their sizes.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	objects  map[string]int
	parts    int
	// refusal is the body of a 403 for each deletion and each replacement; empty takes them.
	refusal string
}

func (s *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	size := len(body)
	if n, err := strconv.Atoi(r.Header.Get("X-Amz-Decoded-Content-Length")); err == nil {
		size = n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, query := r.URL.Path, r.URL.Query()
	held, there := s.objects[name]
	if r.Method != http.MethodHead && r.Method != http.MethodGet {
		s.requests = append(s.requests, r)
	}
	switch {
	case r.Method == http.MethodHead && there:
		w.Header().Set("ETag", `"tag"`)
		w.Header().Set("Content-Length", fmt.Sprint(held))
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		if s.refusal != "" {
			w.Header().Set("X-Amz-Object-Lock-Retain-Until-Date", "2027-01-02T03:04:05Z")
		}
	case r.Method == http.MethodHead || r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
	case there && s.refusal != "":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, s.refusal)
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && query.Has("uploads"):
		s.parts = 0
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
	case query.Has("partNumber"):
		s.parts += size
		w.Header().Set("ETag", `"part"`)
	case r.Method == http.MethodPost:
		s.objects[name] = s.parts
		fmt.Fprint(w, "<CompleteMultipartUploadResult><ETag>\"tag\"</ETag></CompleteMultipartUploadResult>")
	default:
		s.objects[name] = size
		w.Header().Set("ETag", `"tag"`)
	}
}

// records starts such a server, and opens its bucket with these parameters.
func records(t *testing.T, parameters string) (*recorder, *store) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "someone")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	recorded := &recorder{objects: map[string]int{}}
	server := httptest.NewServer(recorded)
	t.Cleanup(server.Close)
	u, err := stores.ParseURL("s3://backups?region=eu-west-1&use_path_style=true" + parameters + "&endpoint=" + server.URL)
	require.NoError(t, err)
	bucket, err := openBucket(t.Context(), u) // not openStore: TestTrust is about the first store of a process
	require.NoError(t, err)
	t.Cleanup(func() { _ = bucket.Close() })
	return recorded, &store{url: u, bucket: bucket}
}

// stores an artifact of this size with its record.
func (s *store) whole(t *testing.T, size int) {
	t.Helper()
	stored, _, err := s.put(t.Context(), key, bytes.NewReader(database(size)), Form{Compression: v1beta1.CompressNone},
		false)
	require.NoError(t, err)
	require.NoError(t, s.finish(t.Context(), key, stored))
}

// begins are the requests by which objects begin: those in one request, and those in parts.
func (s *recorder) begins() []*http.Request {
	var all []*http.Request
	for _, r := range s.requests {
		if r.Method == http.MethodPut && !r.URL.Query().Has("partNumber") || r.URL.Query().Has("uploads") {
			all = append(all, r)
		}
	}
	return all
}

// checksummed reports whether a request says what its body is.
func checksummed(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") || name == "Content-Md5" {
			return true
		}
	}
	return strings.HasPrefix(r.Header.Get("X-Amz-Trailer"), "x-amz-checksum-")
}

// wholeAndInParts are sizes of artifacts that are sent in one request, and in several.
var wholeAndInParts = map[string]int{"in one request": 3 << 20, "in parts": 20 << 20}

// The server is told with each object, the record too, by which key it encrypts. The headers are signed.
func TestUploadsNameTheKey(t *testing.T) {
	for name, size := range wholeAndInParts {
		t.Run(name, func(t *testing.T) {
			recorded, s := records(t, "&ssetype=aws:kms&kmskeyid=arn:aws:kms:eu-west-1:1:key/2")
			s.whole(t, size)
			require.Len(t, recorded.begins(), 2)
			for _, r := range recorded.begins() {
				assert.Equal(t, "aws:kms", r.Header.Get("X-Amz-Server-Side-Encryption"))
				assert.Equal(t, "arn:aws:kms:eu-west-1:1:key/2",
					r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"))
				assert.Contains(t, r.Header.Get("Authorization"),
					"x-amz-server-side-encryption;x-amz-server-side-encryption-aws-kms-key-id")
			}
		})
	}
}

// An upload has a checksum, without which S3 takes none into a bucket with a retention of its own; nothing else is said
// of a lock.
func TestUploadsHaveAChecksum(t *testing.T) {
	for name, size := range wholeAndInParts {
		t.Run(name, func(t *testing.T) {
			recorded, s := records(t, "")
			s.whole(t, size)
			for _, r := range recorded.requests {
				if r.Method == http.MethodPut {
					assert.True(t, checksummed(r), "%s %v", r.URL, r.Header)
				}
				assert.Empty(t, r.Header.Get("X-Amz-Object-Lock-Mode"))
			}
		})
	}
}

// A lock is put on each object, with a checksum also where the store wants none.
func TestUploadsAreLocked(t *testing.T) {
	for _, checksums := range []string{"", "&request_checksum_calculation=when_required"} {
		for name, size := range wholeAndInParts {
			t.Run(name+checksums, func(t *testing.T) {
				recorded, s := records(t, checksums)
				s.lock = &Lock{Mode: "compliance", For: 720 * time.Hour}
				s.whole(t, size)
				require.Len(t, recorded.begins(), 2)
				for _, r := range recorded.begins() {
					assert.Equal(t, "COMPLIANCE", r.Header.Get("X-Amz-Object-Lock-Mode"))
					until, err := time.Parse(time.RFC3339, r.Header.Get("X-Amz-Object-Lock-Retain-Until-Date"))
					require.NoError(t, err)
					assert.WithinDuration(t, time.Now().Add(720*time.Hour), until, time.Minute)
				}
				for _, r := range recorded.requests {
					if r.Method == http.MethodPut {
						assert.True(t, checksummed(r), "%s %v", r.URL, r.Header)
					}
				}
			})
		}
	}
}

// What the store keeps by a retention is told from what it refuses to others, with its end.
func TestRefusedByARetention(t *testing.T) {
	const s3Error = "<Error><Code>%s</Code><Message>%s</Message></Error>"
	for name, c := range map[string]struct{ refusal, reason, says string }{
		"locked": {fmt.Sprintf(s3Error, "AccessDenied", "Access Denied because object protected by object lock."), Locked,
			"the store keeps it until 2027-01-02T03:04:05Z, by a retention"},
		"MinIO": {fmt.Sprintf(s3Error, "InvalidRequest", "Object is WORM protected and cannot be overwritten"), Locked,
			"the store keeps it until 2027-01-02T03:04:05Z"},
		"not allowed": {fmt.Sprintf(s3Error, "AccessDenied", "Access Denied"), Denied, "access was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			recorded, s := records(t, "")
			s.whole(t, 1<<20)
			recorded.refusal = c.refusal
			err := s.remove(t.Context(), key)
			assert.Equal(t, c.reason, ReasonOf(err))
			require.ErrorContains(t, err, c.says)
			assert.Len(t, recorded.objects, 2, "the record stays with what it describes")
			err = s.note(t.Context(), key, struct{}{})
			assert.Equal(t, c.reason, ReasonOf(err), "%v", err)
		})
	}
}

func TestLocksThatCanBe(t *testing.T) {
	good := Lock{Mode: "governance", For: time.Hour}
	require.NoError(t, good.Check(Place{URL: "s3://backups"}))
	require.ErrorContains(t, good.Check(Place{URL: "gs://backups"}), "only S3")
	require.Error(t, good.Check(Place{URL: "?"}))
	require.ErrorContains(t, (&Lock{Mode: "forever", For: time.Hour}).Check(Place{URL: "s3://backups"}), "the mode is")
	require.ErrorContains(t, (&Lock{Mode: "compliance"}).Check(Place{URL: "s3://backups"}), "a minute")
}
