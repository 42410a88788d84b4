package archive

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
)

func TestWordsAreOurs(t *testing.T) {
	_, noURL := url.Parse(strings.Join([]string{"s3://b/", mark, "\n-----BEGIN"}, ""))
	noJSON := json.Unmarshal([]byte(`{"`+mark+`": x}`), &struct{}{})
	noNumber := json.Unmarshal([]byte(`"`+mark+`"`), new(int))
	timeout := &url.Error{Op: "Get", URL: "https://host/" + mark + "?sig=" + mark, Err: context.DeadlineExceeded}
	for want, err := range map[string]error{
		"":   nil,
		" 1": noURL, " 2": noJSON, " 3": noNumber, " 4": errors.New(mark),
		" 5":                        fmt.Errorf("%s: %w", mark, errors.New(mark)),
		"it did not answer in time": timeout,
		"it was stopped":            fmt.Errorf("%s %w", mark, context.Canceled),
		"its name is not known to DNS": &net.OpError{Op: "dial",
			Err: &net.DNSError{Name: mark, Err: mark, IsNotFound: true}},
		"DNS does not answer":         &net.DNSError{Name: mark, Err: mark, IsTimeout: true},
		"connection refused":          &net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: mark, Err: syscall.ECONNREFUSED}},
		"it broke off before its end": fmt.Errorf("%s: %w", mark, io.ErrUnexpectedEOF),
		"no such file or directory":   &fs.PathError{Op: "open", Path: "/" + mark, Err: syscall.ENOENT},
		"no space left on device":     fmt.Errorf("%s: %w", mark, syscall.ENOSPC),
		"its checksum is wrong":       fmt.Errorf("%s: %w", mark, zstd.ErrCRCMismatch),
		"HTTP 403, AuthorizationFailure": &azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthorizationFailure",
			RawResponse: answered(403)},
		"HTTP 418": &azcore.ResponseError{StatusCode: 418, ErrorCode: mark, RawResponse: answered(418)},
		"HTTP 429, rateLimitExceeded": fmt.Errorf("%s: %w", mark, &googleapi.Error{Code: 429, Body: mark, Message: mark,
			Errors: []googleapi.ErrorItem{{Reason: "rateLimitExceeded", Message: mark}}}),
		"HTTP 400, invalid_grant": &url.Error{Op: "Get", URL: mark,
			Err: &oauth2.RetrieveError{Response: answered(400), ErrorCode: "invalid_grant", Body: []byte(mark)}},
		"what we say": fmt.Errorf("%s: %w", mark, OwnWords("what we say")),
		"one; two":    errors.Join(OwnWords("one"), errors.New(mark), OwnWords("two"), OwnWords("one")),
		"it can't be (connection refused)": fmt.Errorf("%s: %w", mark,
			failure(Failed, syscall.ECONNREFUSED, "it can't be")),
		"it can't be":     failure(Failed, errors.New(mark), "it can't be"),
		"it is no record": failure(Failed, noJSON, "it is no record"),
	} {
		words := Words(err)
		assert.NotContains(t, words, mark)
		assert.NotContains(t, words, "\n")
		if strings.HasPrefix(want, " ") {
			want = ""
		}
		assert.Equal(t, want, words)
	}
	assert.Equal(t, "HTTP 403, SignatureDoesNotMatch",
		Words(&googleapi.Error{Code: 403, Body: "<Code>SignatureDoesNotMatch</Code><StringToSign>" + mark}))
	assert.Empty(t, codeIn("NoSuchBuckets XNoSuchKey "+mark), "a code is a word of its own")
}

func answered(code int) *http.Response {
	request := httptest.NewRequest(http.MethodGet, "https://host/"+mark+"?sig="+mark, http.NoBody)
	return &http.Response{StatusCode: code, Status: fmt.Sprintf("%d %s", code, mark),
		Body: io.NopCloser(strings.NewReader(mark)), Request: request}
}

// TestNoFailureOnAClaimTellsItsPath: of the URL of a folder on a claim nothing is repeated,
// whatever is wrong with it.
func TestNoFailureOnAClaimTellsItsPath(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string) Place{
		"no volume": func(_ *testing.T, dir string) Place { return Place{Dir: dir + "/none"} },
		"no folder": func(_ *testing.T, dir string) Place { return Place{Dir: dir} },
		"a file for a folder": func(t *testing.T, dir string) Place {
			put(t, filepath.Join(dir, mark), nil)
			return Place{Dir: dir}
		},
		"a folder for a file": func(t *testing.T, dir string) Place {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, mark, "shop", "demo-1.db", "x"), 0o700))
			return Place{Dir: dir}
		},
		"a file in the way": func(t *testing.T, dir string) Place {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, mark), 0o700))
			put(t, filepath.Join(dir, mark, "shop"), nil)
			return Place{Dir: dir}
		},
		"no record that can be read": func(t *testing.T, dir string) Place {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, mark, "shop"), 0o700))
			put(t, filepath.Join(dir, mark, key+recordSuffix), []byte(`{"`+mark))
			return Place{Dir: dir}
		},
		"no artifact that can be read": func(t *testing.T, dir string) Place {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, mark, "shop"), 0o700))
			put(t, filepath.Join(dir, mark, key), []byte("age-encryption.org/v1\n-> "+mark+"\n"))
			return Place{Dir: dir}
		},
	} {
		t.Run(name, func(t *testing.T) {
			place := spoil(t, t.TempDir())
			place.URL = "file:///" + mark
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			u := use{Place: place}
			assert.NotContains(t, fmt.Sprint(u.download(ctx)), mark)
			u.Upload = true
			assert.NotContains(t, fmt.Sprint(u.upload(ctx)), mark)
			assert.NotContains(t, fmt.Sprint(Discard(ctx, place, key)), mark)
			_, err := SizeOf(ctx, Source{URL: place.URL + "/" + key, StoreDir: place.Dir})
			assert.NotContains(t, fmt.Sprint(err), mark)
		})
	}
}

// TestTheTokenOfAnAccountGoesToNoOther: Azure's SAS token is part of each request's URL.
func TestTheTokenOfAnAccountGoesToNoOther(t *testing.T) {
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sig="+mark)
	for _, c := range []struct {
		account, parameters string
		good                bool
	}{
		{"shop", "", true}, {"shop", "?storage_account=shop", true},
		{"shop", "?storage_account=evil", false}, {"shop", "?domain=blob.core.chinacloudapi.cn", false},
		{"", "?storage_account=evil", false}, {"", "", false},
	} {
		t.Setenv("AZURE_STORAGE_ACCOUNT", c.account)
		t.Setenv("AZURE_AUTHORITY_HOST", "")
		folder, _, err := Source{URL: "azblob://bucket/folder/x.db" + c.parameters}.folder()
		require.NoError(t, err)
		bucket, err := openBucket(t.Context(), folder)
		if c.good {
			require.NoError(t, err)
			require.NoError(t, bucket.Close())
			continue
		}
		assert.Equal(t, Denied, ReasonOf(err))
		assert.NotContains(t, err.Error(), mark)
	}
}

// TestNoCredentialsAreQuoted: what can't be read of them is not repeated, not even on the standard
// output of an SDK.
func TestNoCredentialsAreQuoted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials.json")
	for _, text := range []string{mark, `{"` + mark + `"`, `{"type":"` + mark + `"}`, `{"type":"service_account","private_key":"` + mark + `"}`,
		string(pem.EncodeToMemory(&pem.Block{Type: mark, Bytes: []byte(mark)}))} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		said := asked(t, use{Place: Place{URL: "gs://bucket/" + mark}, Timeout: 5 * time.Second},
			[]string{"GOOGLE_APPLICATION_CREDENTIALS=" + file, "HTTPS_PROXY=http://127.0.0.1:1"})
		assert.NotContains(t, said, mark)
	}
	_, err := readIdentities(identityFile(t, "AGE-SECRET-KEY-1"+mark))
	assert.NotContains(t, err.Error(), mark)
	_, err = ParseRecipients([]string{"age1" + mark})
	assert.NotContains(t, err.Error(), mark)
}
