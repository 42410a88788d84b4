package kubectl

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Completion. kubectl itself completes plugins by a program kubectl_complete-quorate, which is this one under another
// name. What shells read for the name kubectl-quorate asks the same.

// Completing is the command that completes a line, as other programs of kubectl's have it.
const Completing = "__complete"

// completesWithin is how long Kubernetes may take to tell names.
const completesWithin = 5 * time.Second

// Directives that kubectl reads after the words: whether names of files are offered where there are none.
const (
	offerFiles = ":0"
	onlyThese  = ":4"
)

// complete prints what the last word of a line may be.
func (p *Program) complete(ctx context.Context, line []string) {
	ctx, stop := context.WithTimeout(ctx, completesWithin)
	defer stop()
	directive := onlyThese
	list, told := p.candidates(ctx, line)
	if !told {
		directive = offerFiles
	}
	slices.Sort(list)
	for _, word := range list {
		fmt.Fprintln(p.Out, word)
	}
	fmt.Fprintln(p.Out, directive)
}

// candidates are what the last word of a line may be, and whether there are others that can't be told.
func (p *Program) candidates(ctx context.Context, line []string) (list []string, told bool) {
	if len(line) == 0 {
		return nil, true
	}
	last := line[len(line)-1]
	before := line[:len(line)-1]
	if len(before) == 0 {
		for _, c := range append(slices.Clone(commands), install) {
			list = append(list, c.name)
		}
		return beginning(list, last), true
	}
	c := commandNamed(before[0])
	if c == nil {
		return nil, true
	}
	a, flags := p.begin(c)
	awaited := awaits(flags, before)
	if awaited != nil {
		before = before[:len(before)-1]
	}
	words, _ := a.line(flags, before[1:])
	if len(words) > 0 && len(c.takes) > 0 && c.takes[0].optional {
		c.takes[0].put(a, words[0])
	}
	name, value, assigned := strings.Cut(last, "=")
	switch {
	case awaited != nil:
		return valuesOf(ctx, a, awaited, last)
	case strings.HasPrefix(last, "-") && assigned:
		return valuesOf(ctx, a, flags.Lookup(strings.TrimLeft(name, "-")), value)
	case strings.HasPrefix(last, "-"):
		flags.VisitAll(func(f *flag.Flag) { list = append(list, dashed(f.Name)) })
		return beginning(list, last), true
	}
	return beginning(a.next(ctx, words), last), true
}

// beginning are those that begin so.
func beginning(list []string, with string) (fit []string) {
	for _, word := range list {
		if strings.HasPrefix(word, with) {
			fit = append(fit, word)
		}
	}
	return fit
}

// dashed is a flag as people type it.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// awaits is the flag whose value comes next on a line; nil for none.
func awaits(flags *flag.FlagSet, line []string) *flag.Flag {
	last := line[len(line)-1]
	if !strings.HasPrefix(last, "-") {
		return nil
	}
	f := flags.Lookup(strings.TrimLeft(last, "-")) // one with its value has no such name
	if f == nil {
		return nil
	}
	if b, is := f.Value.(interface{ IsBoolFlag() bool }); is && b.IsBoolFlag() {
		return nil
	}
	return f
}

// valuesOf a flag, as far as they can be told.
func valuesOf(ctx context.Context, a *invocation, f *flag.Flag, begin string) (list []string, told bool) {
	if f == nil {
		return nil, true
	}
	w, is := f.Value.(word)
	if !is || w.known == nil {
		return nil, false
	}
	return beginning(w.known(ctx, a), begin), true
}

// next are what may follow these words. NAME may be left out, so its place may have what follows it.
func (a *invocation) next(ctx context.Context, line []string) (list []string) {
	takes := a.takes
	offer := func(i int) {
		if i < len(takes) && takes[i].known != nil {
			list = append(list, takes[i].known(ctx, a)...)
		}
	}
	switch n := len(takes); {
	case n == 0:
	case takes[n-1].many:
		offer(min(len(line), n-1))
	default:
		offer(len(line))
		if len(line) == 0 && takes[0].optional {
			offer(1)
		}
	}
	return list
}

// completion prints what a shell reads: `source <(kubectl-quorate completion bash)`.
func (a *invocation) completion() error {
	fmt.Fprint(a.Out, scripts[a.word])
	return nil
}

// scripts by shell. The last line that is asked for is a directive.
var scripts = map[string]string{
	"bash": `_kubectl_quorate() {
	local line=${COMP_LINE:0:COMP_POINT} words last list
	read -ra words <<< "$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	last=${words[${#words[@]}-1]}
	last=${last#-*=}
	list=$(kubectl-quorate __complete "${words[@]:1}" 2> /dev/null)
	if [[ $list == *:0 ]]; then
		COMPREPLY=($(compgen -f -- "$last"))
	else
		COMPREPLY=($(compgen -W "${list%:4}" -- "$last"))
	fi
}
complete -F _kubectl_quorate kubectl-quorate
`,
	"zsh": `#compdef kubectl-quorate
_kubectl_quorate() {
	local -a list
	list=("${(@f)$(kubectl-quorate __complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
	if [[ $list[-1] == :0 ]]; then
		_files
	else
		list[-1]=()
		[[ $words[CURRENT] == -*=* ]] && compset -P '*='
		compadd -a list
	fi
}
compdef _kubectl_quorate kubectl-quorate
`,
	"fish": `function __kubectl_quorate
	set -l last (commandline -ct)
	set -l list (kubectl-quorate __complete (commandline -opc)[2..] "$last" 2> /dev/null)
	if test "$list[-1]" = :0
		__fish_complete_path (string replace -r '^-[^=]*=' '' -- $last)
	else if string match -qr '^-[^=]*=' -- $last
		string replace -r -- '^' (string match -r '^-[^=]*=' -- $last) $list[1..-2]
	else
		printf '%s\n' $list[1..-2]
	end
end
complete -c kubectl-quorate -f -a '(__kubectl_quorate)'
`,
}
