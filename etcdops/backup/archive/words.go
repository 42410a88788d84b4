package archive

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/klauspost/compress/zstd"
	bolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
)

// What SDKs, parsers and libraries say in their errors is never passed on: a request's URL has the
// token of Azure in it, a server may repeat in its answer what it was sent, and a parser quotes
// what it could not read. What is passed on is told here, in words of our own.

// Worded is an error whose words may be passed on, because they are ours: they hold no secret,
// nothing of a URL but its scheme and host, and nothing of what is stored.
type Worded interface {
	error
	Words() string
}

// Words are what may be said of an error, in one line; empty when its kind is not known.
func Words(err error) string {
	if err == nil {
		return ""
	}
	if joined, is := err.(interface{ Unwrap() []error }); is {
		var all []string
		for _, one := range joined.Unwrap() {
			if words := Words(one); words != "" && !slices.Contains(all, words) {
				all = append(all, words)
			}
		}
		return strings.Join(all, "; ")
	}
	if own := Worded(nil); errors.As(err, &own) {
		return own.Words()
	}
	for _, known := range []func(error) string{answer, untrusted, way, content, oddAnswer} {
		if words := known(err); words != "" {
			return words
		}
	}
	return ""
}

// own are words of ours.
type own string

func (o own) Error() string { return string(o) }

// Words implements [Worded].
func (o own) Words() string { return string(o) }

// OwnWords is an error that says this.
func OwnWords(format string, args ...any) error { return own(fmt.Sprintf(format, args...)) }

// ofEtcd is an error of etcd's client, whose words may be passed on: it was never given a secret
// other than the key of its certificate, which TLS shows to no one. It repeats what a member
// answers, and no secret is sent to members either.
type ofEtcd struct{ error }

func (e ofEtcd) Unwrap() error { return e.error }

// Words implements [Worded].
func (e ofEtcd) Words() string { return oneLine(e.error) }

// byEtcd is an error of etcd's client.
func byEtcd(err error) error {
	if err == nil {
		return nil
	}
	return ofEtcd{err}
}

// longest is how much is passed on of what etcd says: a termination message has 4096 bytes.
const longest = 600

func oneLine(err error) string {
	words := strings.Join(strings.Fields(err.Error()), " ")
	if len(words) > longest {
		return words[:longest] + "..."
	}
	return words
}

// answer is what a store has answered: the status, and the code of the error where it is one of
// those that are known.
func answer(err error) string {
	status := refusalOf(err)
	said := codeIn(err.Error())
	switch {
	case status > 0 && said != "":
		return fmt.Sprintf("HTTP %d, %s", status, said)
	case status > 0:
		return fmt.Sprintf("HTTP %d", status)
	}
	return said
}

// statusOf is the status that a store has answered with; 0 when it has not.
func statusOf(err error) int {
	var (
		amazon interface{ HTTPStatusCode() int } // of the package transport/http of smithy-go
		azure  *azcore.ResponseError
		google *googleapi.Error
		token  *oauth2.RetrieveError
		status int
	)
	switch {
	case errors.As(err, &token) && token.Response != nil:
		status = token.Response.StatusCode
	case errors.As(err, &amazon):
		status = amazon.HTTPStatusCode()
	case errors.As(err, &azure):
		status = azure.StatusCode
	case errors.As(err, &google):
		status = google.Code
	}
	return status
}

// refusalOf is a status by which a store refuses; 0 when it has not.
func refusalOf(err error) int {
	if status := statusOf(err); status >= http.StatusMultipleChoices {
		return status
	}
	return 0
}

// oddAnswer is a status that means no refusal, and by which nothing can be done all the same.
func oddAnswer(err error) string {
	if status := statusOf(err); status > 0 {
		return fmt.Sprintf("HTTP %d", status)
	}
	return ""
}

// codes of errors that stores are known to answer with. Only these are passed on, so that nothing
// else can be. They are Amazon's (docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html),
// Microsoft's (learn.microsoft.com/rest/api/storageservices/blob-service-error-codes and
// common-rest-api-error-codes), Google's (cloud.google.com/storage/docs/json_api/v1/status-codes)
// and those of OAuth 2 (RFC 6749, section 5.2).
var codes = strings.Fields(`
	AccessDenied AccountProblem AllAccessDisabled AuthorizationHeaderMalformed BadDigest
	EntityTooLarge EntityTooSmall ExpiredToken IllegalLocationConstraintException IncompleteBody
	InternalError InvalidAccessKeyId InvalidArgument InvalidBucketName InvalidDigest
	InvalidObjectState InvalidPart InvalidRequest InvalidSecurity InvalidToken
	KMSAccessDeniedException KMSDisabledException KMSNotFoundException MalformedXML
	MethodNotAllowed MissingContentLength MissingSecurityHeader NoSuchBucket NoSuchKey
	NoSuchUpload NotImplemented NotSignedUp OperationAborted PermanentRedirect QuotaExceeded
	RequestTimeTooSkewed RequestTimeout ServiceUnavailable SignatureDoesNotMatch SlowDown
	TemporaryRedirect TooManyRequests XAmzContentSHA256Mismatch InvalidIdentityToken
	AccountBeingCreated AccountIsDisabled AuthenticationFailed AuthorizationFailure
	AuthorizationPermissionMismatch AuthorizationProtocolMismatch
	AuthorizationResourceTypeMismatch AuthorizationServiceMismatch AuthorizationSourceIPMismatch
	BlobArchived BlobImmutableDueToPolicy BlobNotFound ContainerBeingDeleted ContainerDisabled
	ContainerNotFound FeatureVersionMismatch InsufficientAccountPermissions
	InvalidAuthenticationInfo InvalidResourceName KeyBasedAuthenticationNotPermitted
	LeaseIdMissing NoAuthenticationInformation OperationTimedOut PublicAccessNotPermitted
	ResourceNotFound ServerBusy
	accessNotConfigured authError backendError insufficientPermissions invalidParameter
	quotaExceeded rateLimitExceeded retentionPolicyNotMet userRateLimitExceeded userProjectMissing
	invalid_client invalid_grant unauthorized_client
`)

var known = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(` + strings.Join(codes, "|") + `)\b`) })

func codeIn(words string) string { return known().FindString(words) }

// untrusted says why a server is not the one that it should be; empty for nothing known.
func untrusted(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		notTLS    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case errors.As(err, &authority):
		return "its certificate is signed by an authority that is not trusted"
	case errors.As(err, &name):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &notTLS):
		return "it does not speak TLS"
	case errors.As(err, &alert):
		return "it refuses TLS"
	}
	return ""
}

// way says what is wrong on the way to a server, or to a file; empty for nothing known.
func way(err error) string {
	var (
		dns     *net.DNSError
		network net.Error
		system  syscall.Errno
		exit    *exec.ExitError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "its name is not known to DNS"
	case errors.As(err, &dns):
		return "DNS does not answer"
	case errors.Is(err, context.Canceled):
		return "it was stopped"
	case brokenOff(err):
		return "it broke off before its end"
	case errors.As(err, &system):
		return system.Error()
	case errors.As(err, &exit):
		return exit.ProcessState.String() // "exit status 1", "signal: killed"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "it did not answer in time"
	}
	return ""
}

// brokenOff reports whether a request or an answer ended before its end. Google's SDK has no type
// for that.
func brokenOff(err error) bool {
	for _, end := range []error{syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return strings.Contains(err.Error(), "partial request not satisfied")
}

// content says what is wrong with what is read; empty for nothing known. What libraries say of it
// may quote it.
func content(err error) string {
	for _, k := range []struct {
		is    error
		words string
	}{
		{zstd.ErrMagicMismatch, "it is not compressed with Zstandard where it should be"},
		{zstd.ErrCRCMismatch, "its checksum is wrong"},
		{zstd.ErrWindowSizeExceeded, "its compression needs too much memory"},
		{zstd.ErrDecoderSizeExceeded, "its compression needs too much memory"},
		{bolterrors.ErrInvalid, "it has no page of bbolt at its beginning"},
		{bolterrors.ErrVersionMismatch, "it is of another version of bbolt"},
		{bolterrors.ErrChecksum, "the checksum of its first pages is wrong"},
		{bolterrors.ErrTimeout, "it is in use"},
		{exec.ErrNotFound, "the program does not exist"},
	} {
		if errors.Is(err, k.is) {
			return k.words
		}
	}
	return ""
}
