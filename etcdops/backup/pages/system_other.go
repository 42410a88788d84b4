//go:build !linux

package pages

import "os"

// WriteOut does nothing here.
func WriteOut(*os.File, int64, int64) {}

func willNeed(*os.File, int64, int64) {}
