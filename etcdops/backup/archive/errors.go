package archive

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"gocloud.dev/gcerrors"
)

// Reasons for which there is no artifact or it can't be used, in one word each: reports.Restore.Reason has them.
const (
	// WrongKey: it is encrypted, and none of the identities at hand opens it.
	WrongKey = "WrongKey"
	// Damaged: what is stored is not what was written, or not whole.
	Damaged = "Damaged"
	// NoSpace: a disk is full, here or at the store.
	NoSpace = "NoSpace"
	// NotFound: there is no such artifact, folder or bucket.
	NotFound = "NotFound"
	// Denied: the credentials are missing, wrong, or not enough.
	Denied = "Denied"
	// Locked: the store keeps an object by a retention, and neither deletes nor replaces it.
	Locked = "Locked"
	// Unreachable: the store or the cluster did not answer, or was not who it should be.
	Unreachable = "Unreachable"
	// Failed: something else.
	Failed = "Failed"
)

// reasonedError is a failure with its reason. Its text is a sentence that says what happened, to what, and
// what to do. It tells no secret, whatever caused it: see [Words].
type reasonedError struct {
	reason string
	// text is the sentence, without what caused it.
	text string
	// err is the cause; nil when the text says all.
	err error
	// hidden is a cause that the text tells already.
	hidden error
}

func (e *reasonedError) Error() string { return e.Words() }

// Words implements [Worded]: the sentence, and in brackets what is known of the cause.
func (e *reasonedError) Words() string {
	if e.err == nil {
		return e.text
	}
	if cause := Words(e.err); cause != "" {
		return e.text + " (" + cause + ")"
	}
	return e.text
}

func (e *reasonedError) Unwrap() error {
	if e.err == nil {
		return e.hidden
	}
	return e.err
}

// ReasonOf is the reason of an error; Failed for one that has none.
func ReasonOf(err error) string {
	var known *reasonedError
	if errors.As(err, &known) {
		return known.reason
	}
	return Failed
}

// Reasoned reports whether an error has a reason.
func Reasoned(err error) bool { return errors.As(err, new(*reasonedError)) }

// Failure is an error with its reason. The sentence says what happened, to what, and what to do; what is known of the
// cause follows in brackets. Nil is no cause.
func Failure(reason string, cause error, format string, args ...any) error {
	return failure(reason, cause, format, args...)
}

func failure(reason string, cause error, format string, args ...any) error {
	return &reasonedError{reason: reason, text: fmt.Sprintf(format, args...), err: cause}
}

// storeFailure says what an error of the store means while doing something with an object of it. Errors that have a
// reason keep it.
func (s *store) storeFailure(err error, doing string) error {
	var known *reasonedError
	if err == nil {
		return nil
	}
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, context.Canceled) {
		return failure(Failed, err, "%s was stopped", doing)
	}
	switch reason := s.reason(err); reason {
	case NotFound:
		return failure(reason, err, "%s: not found; check the bucket or folder and the name", doing)
	case Denied:
		return failure(reason, err, "%s: access was refused; check the credentials of the store and what they may do "+
			"there", doing)
	case NoSpace:
		return failure(reason, err, "%s: no space is left; free some space or enlarge the volume", doing)
	case Unreachable:
		return failure(reason, err, "%s: the store can't be reached; check its address, its certificate and the "+
			"network between", doing)
	default:
		return failure(reason, err, "%s failed", doing)
	}
}

func (s *store) reason(err error) string {
	switch {
	case full(err):
		return NoSpace
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return Denied
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case refusalOf(err) == 0 && unreachable(err):
		return Unreachable
	case refused(err):
		return Denied
	case refusalOf(err) >= http.StatusInternalServerError:
		return Failed
	}
	switch gcerrors.Code(err) {
	case gcerrors.NotFound:
		return NotFound
	case gcerrors.PermissionDenied:
		return Denied
	case gcerrors.DeadlineExceeded:
		return Unreachable
	case gcerrors.ResourceExhausted:
		return NoSpace
	default:
		return Failed
	}
}

// Words of refusals by stores and their SDKs that gocloud.dev v0.47 has no code for: S3's error codes for a key that
// does not exist or is wrong, an SDK without any credentials, and the statuses of Google, which it calls NotFound.
var (
	// unauthenticated: the store does not know who asks.
	unauthenticated = []string{
		"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed",
		"AuthenticationFailed", "AccountIsDisabled",
		"no EC2 IMDS role found", "get credentials", "could not find default credentials", "DefaultAzureCredential",
		"invalid_grant",
	}
	// refusals: it may be of this one thing.
	refusals = []string{"AuthorizationFailure", "AuthorizationPermissionMismatch"}
)

func refused(err error) bool {
	status := refusalOf(err)
	return status == http.StatusForbidden || status == http.StatusUnauthorized || isUnauthenticated(err) || says(err, refusals)
}

// isUnauthenticated reports whether a store does not know who asks: then nothing will be permitted there.
func isUnauthenticated(err error) bool { return says(err, unauthenticated) }

// says reports whether an error, or what it wraps, has one of these words.
func says(err error, words []string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		text := err.Error()
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) }) {
			return true
		}
	}
	return false
}

// full reports whether an error is about a disk or a quota that is full.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// unreachable reports whether an error is about the way to a server rather than about what it said.
func unreachable(err error) bool {
	var (
		network    net.Error
		dns        *net.DNSError
		op         *net.OpError
		authority  x509.UnknownAuthorityError
		name       x509.HostnameError
		invalid    x509.CertificateInvalidError
		handshake  *tls.CertificateVerificationError
		notTLS     tls.RecordHeaderError
		alertError tls.AlertError
	)
	for _, kind := range []any{&dns, &op, &authority, &name, &invalid, &handshake, &notTLS, &alertError} {
		if errors.As(err, kind) {
			return true
		}
	}
	late := errors.As(err, &network) && network.Timeout()
	return late || errors.Is(err, context.DeadlineExceeded) || brokenOff(err)
}
