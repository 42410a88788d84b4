module github.com/quorate-dev/quorate/test/real/lab

go 1.26.0

require golang.org/x/sys v0.49.0
