package detect

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// A message says what happened in a sentence with a subject and a predicate near it, in either order: "You've hit your
// usage limit", "quota exhausted", "no credits left". Some words say both: "overloaded". The grammar knows the words, in
// any combination, and no sentence.

// subject is what a message is about, and predicate is what happened to it. Both are sets, because words have several
// meanings.
type (
	subject   uint16
	predicate uint16
)

const (
	ofLimit subject = 1 << iota
	ofSpend
	ofCredits
	ofContext
	ofOutput // the length of an answer
	ofLogin
	ofAccess
	ofServer
	ofNetwork
	ofTurns
	ofWork // what the program does
)

const (
	isReached predicate = 1 << iota
	isScarce            // not enough of it
	isMissing
	isInvalid
	isDisabled
	isFailed
	isTooLong
	isNeeded
	isError // names an error without a predicate, as in rate_limit_error
	isReset // states when the limit ends
)

// class is a meaning of a message. The order is that of importance within one sentence.
type class uint8

const (
	noClass class = iota
	spendClass
	creditsClass
	contextClass
	limitClass
	loginClass
	accessClass
	overloadedClass
	throttledClass // by the server, without a word about a quota
	turnsClass
	networkClass
	serverClass
	failureClass
	cancelClass
	waitClass // only a time to wait is stated
)

// meanings is the table of the grammar.
var meanings = []struct {
	subject   subject
	predicate predicate
	class     class
}{
	{ofSpend, isReached | isTooLong | isError, spendClass},
	{ofCredits, isReached | isScarce | isMissing | isNeeded | isError | isInvalid | isFailed | isDisabled, creditsClass},
	{ofContext, isReached | isTooLong | isError, contextClass},
	{ofOutput, isReached | isTooLong, turnsClass},
	{ofLimit, isScarce, creditsClass},
	{ofLimit, isReached | isMissing | isReset | isTooLong | isError, limitClass},
	{ofLogin, isInvalid | isMissing | isDisabled | isNeeded | isFailed | isError, loginClass},
	{ofAccess, isDisabled | isMissing | isInvalid | isNeeded, accessClass},
	{ofAccess, isReset, limitClass},
	{ofTurns, isReached | isError, turnsClass},
	{ofNetwork, isFailed | isMissing | isDisabled | isError, networkClass},
	{ofServer, isFailed | isDisabled | isError, serverClass},
	{ofWork, isFailed | isDisabled | isInvalid, failureClass},
}

// stops has the verdict of each class.
var stops = map[class]Rule{
	limitClass: {ID: "limit", Reason: RateLimit}, waitClass: {ID: "wait", Reason: RateLimit},
	spendClass: {ID: "spend", Reason: Terminal}, creditsClass: {ID: "credits", Reason: Terminal},
	loginClass: {ID: "login", Reason: Terminal}, accessClass: {ID: "access", Reason: Terminal},
	contextClass: {ID: "context", Reason: ContextFull}, overloadedClass: {ID: "overloaded", Reason: Overloaded},
	throttledClass: {ID: "throttled", Reason: Overloaded}, networkClass: {ID: "network", Reason: Overloaded},
	serverClass: {ID: "server", Reason: Overloaded}, turnsClass: {ID: "turns", Reason: Crashed, Fallback: true},
	failureClass: {ID: "failure", Reason: Crashed, Fallback: true}, cancelClass: {ID: "cancel", Reason: UserExit, Fallback: true},
}

// grammarRules has the rules of the classes, so that a [match] can refer to them; those of messages after which the
// program continues by itself have the key true.
var grammarRules = sync.OnceValue(func() map[bool]map[class]*rule {
	rules := map[bool]map[class]*rule{false: {}, true: {noClass: {Rule: Rule{ID: "retrying", Alive: true}, pack: "generic", trust: ByLine}}}
	for c, r := range stops {
		r.Terminal = r.Reason == Terminal
		rules[false][c] = &rule{Rule: r, pack: "generic", trust: ByLine}
		rules[true][c] = &rule{Rule: Rule{ID: r.ID + "-retrying", Reason: r.Reason, Alive: true}, pack: "generic", trust: ByLine}
	}
	return rules
})

// statuses has the meanings of statuses of HTTP, if the words say nothing.
var statuses = map[string]class{
	"401": loginClass, "402": creditsClass, "403": accessClass, "408": networkClass, "429": limitClass, "499": networkClass,
	"500": serverClass, "502": serverClass, "503": overloadedClass, "504": serverClass, "520": serverClass, "522": serverClass, "524": serverClass, "529": overloadedClass,
	"400": failureClass, "404": failureClass, "413": failureClass, "422": failureClass,
}

// sense is what a word or a phrase means.
type sense struct {
	subject   subject
	predicate predicate
	class     class // of words that say it alone
	trait     trait
}

// trait is a set of properties of a word.
type trait uint8

const (
	bareWord  trait = 1 << iota // any program may say it: it is the text of a status
	proseWord                   // of a text about messages, not of a message
	goesOn                      // the program continues in another way
	ifWord                      // what follows is a condition
	addressed                   // the program speaks to its user
	period                      // of a limit
)

func (s sense) is(t trait) bool { return s.trait&t != 0 }

// words is the vocabulary: in each row the phrases, separated by commas, and what they mean. Phrases are in lower case;
// a plural or a genitive is found by its singular.
var words = []struct {
	phrases string
	sense   sense
}{
	{"limit, rate limit, ratelimit, usage limit, request limit, message limit, session limit, quota, allowance, usage, rpm, tpm, rpd, tpd, requests per minute, requests per day, tokens per minute, tokens per min, token per minute, tokens per day, input tokens per minute, output tokens per minute, premium request, message quota, rate, fair use, free request, free usage, extra usage, capacity on this model, free tier, daily requests, prompts, maximum number of requests, request count, interactions, invocations, cap", sense{subject: ofLimit}},
	{"spend cap, spending cap, spend limit, spending limit, spend, spending, budget, cost limit, cost, max budget, maximum budget, billing limit, hard limit, cost cap, usage cap in dollars, price limit, call limit", sense{subject: ofSpend}},
	{"credit, credits, balance, fund, credit balance, account balance, payment, payment method, credit limit, billing, prepaid, credit card, card, invoice, wallet, top up, top-up, usage credits, dollars, trial, free trial, trial period", sense{subject: ofCredits}},
	{"context, context window, context length, context limit, context size, context window limit, context length limit, model context limit, maximum context length, maximum context, prompt, conversation, conversation history, chat history, chat session, session history, message history, history, input length, input tokens, token limit, prompt tokens, model token limit, max tokens limit, token window, transcript, maximum prompt length, maximum number of tokens, maximum tokens, token count, tokens", sense{subject: ofContext}},
	{"output token, output tokens, output token maximum, output limit, max output tokens, output token limit, response length, completion tokens", sense{subject: ofOutput}},
	{"login, api key, api-key, apikey, x-api-key, key, access token, oauth token, refresh token, auth token, authentication token, bearer token, token, session token, authentication, credential, authorization, auth, oauth, session, auth method, sign-in, api token, personal access token, identity, authenticating, authenticate, client secret, oauth session, secret", sense{subject: ofLogin}},
	{"access, permission, subscription, plan, organization, organisation, account, model, feature, endpoint, region, country, license, licence, workspace, provider, terms of service, membership, seat, entitlement, policy, user, project, deployment, billing account, location, free plan, billing plan, tier, team, agent access, license key", sense{subject: ofAccess}},
	{"server, service, api, backend, upstream, gateway, model provider, llm provider, api provider, provider's, request, response, stream, completion, api call, inference, llm, engine, function call, message, api server, api service, llm service, websocket, event stream, model stream", sense{subject: ofServer}},
	{"network, connection, socket, dns, internet, host, transport, fetch, internet connection, connectivity, tls handshake, handshake, peer, getaddrinfo, network connection, heartbeats, http request, ssl, tls, proxy", sense{subject: ofNetwork}},
	{"requests", sense{subject: ofLimit | ofServer}},
	{"turn, step, iteration, tool call, max turns, max steps, number of turns, number of steps, maximum number of turns, maximum number of iterations, maximum iteration, loop, retry attempt, retries, maximum retry attempts, max retries, step limit, steps limit, max steps limit, turn limit, turns limit, max turns limit, iterations limit, iteration limit, tool call limit, loop limit, tool rounds, recursion, recursion limit, mistakes, requests in a row", sense{subject: ofTurns}},
	{"execution, task, run, operation, process, command, agent, conversation turn, generation", sense{subject: ofWork}},

	{"hit, reached, reach, exceeded, exceed, exceeds, exceeding, exhausted, used up, used all, consumed, depleted, run out, ran out, out of, maxed out, surpassed, over, used 100%, 100% used, all used, spent, overflowed, overflow, gone over, full, met, limited, limited to, at limit, ran through, above, beyond, rejected due to, drained, finished, capped, expended, hit a", sense{predicate: isReached}},
	{"insufficient, too low, not enough, low, negative, lacks, lack, empty, zero, requires more, need more, can only afford, ran dry, unpaid, past due, overdue, declined, have more", sense{predicate: isScarce}},
	{"no, missing, none, without, not found, not set, no longer have, do not have, don't have, does not have, doesn't have, not present, could not find, couldn't find, couldn't, cannot find, not provided, not configured, not selected, not exist, does not exist, doesn't exist, unset, left, remaining, not specified, unknown, not available for", sense{predicate: isMissing}},
	{"invalid, incorrect, expired, revoked, wrong, rejected, not valid, denied, refused, malformed, unauthorized, not recognized, unrecognized, could not be refreshed, couldn't be refreshed, cannot be refreshed, not be refreshed, not able to authenticate, unable to authenticate, not accepted, already used, failed to refresh, refresh failed, not verified, could not be verified, bad, does not match, unverified, mismatch, signed out, logged out, not permitted, ineligible, not supported, unsupported, not included", sense{predicate: isInvalid}},
	{"disabled, suspended, deactivated, banned, blocked, restricted, discontinued, deprecated, unavailable, not available, not allowed, not enabled, not authorized, not eligible, no longer, no longer available, no longer supported, inactive, canceled, cancelled, terminated, retired, not have permission, locked, removed, prohibited, isn't available, is not available, not active, not accessible, shut down, sunset, closed, halted, stopped, stopping", sense{predicate: isDisabled}},
	{"failed, failure, fail, fails, timeout, timed out, time out, lost, reset by, disconnected, unreachable, cannot reach, can't reach, could not reach, couldn't reach, unable to reach, unable to connect, cannot connect, can't connect, could not connect, couldn't connect, failed to connect, error connecting, dropped, interrupted, aborted, down, not responding, not respond, no response, empty response, crashed, busy, broken, broke, stalled, ended, not complete, unable to complete, closed, closed before, closed prematurely, ended unexpectedly, internal, internal error, internal issue, issue, connectivity issue, experiencing, unexpected, malformed, eof, error sending request, error decoding, returned an empty, longer than expected, took too long, hang up, temporarily unavailable, went wrong, encountered, had an error, error occurred, stuck, stopped sending, cut off, truncated, incomplete, stuck in, detected, refused to connect, exit", sense{predicate: isFailed}},
	{"too long, too large, too big, larger than, longer than, larger, exceeds the, too many, greater than, too much", sense{predicate: isTooLong}},
	{"required, requires, needed, please run, please log, please login, please sign, please set, please add, sign in, must sign, must log, need to sign, need to log, not logged in, not signed in, add, purchase, buy, please provide, you need, must provide, needs, please configure, please login again, re-authenticate, reauthenticate, please verify, upgrade, subscribe, must set, before running, set an", sense{predicate: isNeeded}},
	{"error, exception", sense{predicate: isError}},
	{"will reset, will refresh, regain access, will renew, will be restored, available again, will replenish", sense{predicate: isReset}},

	{"too many requests", sense{class: limitClass, trait: bareWord}},
	{"no requests remaining, no requests left, no more requests, no messages left, no messages remaining, no prompts left, no generations left, no quota left, no usage left, rate limited, rate-limited, usage limited, request rejected, slow down, tokens per minute limit, too many concurrent, rate limiting you, quota reached, overage, access resets, it will reset, your limit resets, your limits reset, your quota resets, your usage resets", sense{class: limitClass}},
	{"resource exhausted, resource has been exhausted", sense{class: throttledClass, trait: bareWord}},
	{"temporarily limiting, throttled, throttling, throttlingexception, temporarily limited, retry limit, rate limiting your", sense{class: throttledClass}},
	{"overloaded, overload, overload error, at capacity, over capacity, no capacity, out of capacity, capacity exhausted, capacity constraints, high demand, heavy load, high load, heavy traffic, high traffic, capacity available, too busy, is busy, currently busy, server busy, under load, experiencing high, capacity limits, model unavailable, down or overloaded, selected is temporarily unavailable, select is temporarily unavailable, model is temporarily unavailable, model is currently unavailable, model temporarily unavailable", sense{class: overloadedClass}},
	{"service unavailable", sense{class: overloadedClass, trait: bareWord}},
	{"internal server error, bad gateway, gateway timeout, temporarily unavailable, service error, server error, internal error, upstream error, gateway time-out, transient", sense{class: serverClass, trait: bareWord}},
	{"unauthorized, unauthenticated", sense{class: loginClass, trait: bareWord}},
	{"not logged in, not signed in, be signed in, be logged in, must be signed in, must be logged in, not authenticated, login required, please log in, please login, please sign in, authentication required, sign in to continue, run /login, re-authenticate, reauthenticate, signed out, logged out, send /login, authentication error, not able to authenticate, refused your authentication, could not authenticate, couldn't authenticate, unable to authenticate, re-login, relogin, login to, login again, must authenticate, need to authenticate, invalid credentials, sign in again, log in again, sign in to, log in with, sign in with", sense{class: loginClass}},
	{"forbidden, permission denied, access denied", sense{class: accessClass, trait: bareWord}},
	{"not have access, no access, not have permission, not entitled, not allowed to, certificate verify failed, certificate verification failed, self signed certificate, self-signed certificate, unable to get local issuer, terms of service violation, violates, not found or is invalid, not authorized to", sense{class: accessClass}},
	{"payment required, out of credits, out of funds, no payment method, insufficient funds, insufficient credits, insufficient balance, insufficient quota, billing error, arrears, recharge, top up your", sense{class: creditsClass}},
	{"unreachable, no response, econnreset, econnrefused, enotfound, etimedout, eai_again, epipe, ehostunreach, enetunreach, socket hang up, fetch failed, connection error, network error, timed out, timeout, connection refused, connection reset, unable to connect, cannot connect, connection closed, disconnected before completion, error sending request, connecttimeout, readtimeout, getaddrinfo, name resolution, no route to host, deadline exceeded, connection failed, connection lost, connection aborted, check your internet, check your network, premature close, ended prematurely", sense{class: networkClass}},
	{"context length exceeded, context window exceeded, prompt too long, maximum context length, input is too long for, exceed context limit, maximum prompt length is, out of room, context overflow, request too large for", sense{class: contextClass}},
	{"panicked, unhandled rejection, uncaught exception, out of memory, segmentation fault, unexpected token, key error, model refused, refused to, consecutive errors, has crashed, stuck in a loop, loop was detected, loop detected, max turns, max steps, maximum number of turns, safety reasons, content policy, malformed function call, unable to complete, no usage data, cannot continue, could not continue, gave up, giving up, stopped due, has been halted, blocked by, safety, prohibited content, bad request, invalid request, unexpected error, unhandled, internal assertion, task stopped", sense{class: failureClass}},

	{"cancelled by user, canceled by user, cancelled by the user, canceled by the user, operation cancelled, operation canceled, interrupted by user, interrupted by the user, aborted by user, aborted by the user, user cancelled, user canceled, user aborted, user interrupted", sense{class: cancelClass}},

	{"i, i'm, i've, i'll, we've, we'll, fix, fixed, fixing, added, adding, adds, improve, improved, handle, handled, handles, handling, retried, test, tests, tested, fixture, covered, covers, implement, implements, implemented, document, documented, documents, documentation, expected, matched, matches, matching, parse, parsed, parses, parser, mapped, maps, banner, pattern, regex, prints, printed, shown, showing, shows, says, implement, implementing, verify, verifies, verified, assert, mock, mocked, example, examples, e.g, handler, classifier, rather, detects, treat, treats, such, these, them, they'll, recognizes, instead, likely, surfaces, propagated, refactor, caller, callers, stub, snapshot, now returns, constructor, middleware, honoured, honored, honours, and passes, is now, are now, in the old, and pass, are retried, is retried, readme, changelog, support for, issue was, repro, reported, reports, users, someone, everyone, one account, is used to, code path, should be, those, who, can be, how, why, whose, the line, keeps, despite, exponential backoff, backoff, may have, list, requests now, now get, responses are, errors are, root cause, so i, so the, repository, repo, commit, branch, function, component, ci, staging, database, schema, table, column, button, queue, deployed, deployment, npm, docker, registry, customer, order, upload, script, migration, is used, see the log, in the log, none left", sense{trait: proseWord}},
	{"when, whenever, whether", sense{trait: ifWord | proseWord}},
	{"if, unless, once, until, while, as soon as, so that, to avoid, avoid, prevent, in case", sense{trait: ifWord}},
	{"compacting, summarizing, temporarily switching, and continuing, now using, falling back to, using extra usage, resumed, resuming, automatically compacted, auto-compacting, continuing your, is continuing, been switched to, switched to", sense{trait: goesOn | proseWord}},
	{"approaching, close to, almost, nearly, near, not over, running low, has reset, have reset, 2x, higher, was reset, less than, about to, auto-compact, will be compacted", sense{trait: goesOn}},
	{"you, your, you've, you're, sorry, please, we're", sense{trait: addressed}},
	{"billing cycle, billing period, 5-hour, five-hour, 5 hour, daily, weekly, monthly, hourly, per-minute, per minute, per day, per hour, session, today, this month, this week, minute, 24-hour, annual, opus", sense{trait: period}},
	// The other words of messages.
	{"a, an, the, this, that, of, for, to, on, in, at, by, with, from, and, or, but, it, its, our, as, per, than, not, is, are, was, were, be, been, being, am, have, has, had, having, will, would, can, could, cannot, can't, may, might, must, do, does, did, done, so, any, all, more, most, there, here, after, before, because, due, since, via, between, other, another, different, new, again, later, now, soon, shortly, currently, current, already, just, only, also, then, too, still, yet, back, up, down, some, few, many, much, own, unable, we, they, isn't, doesn't, don't, didn't, hasn't, haven't, unfortunately, oops, hey, hi, apologize, appreciate, patience, inconvenience, thank, heads, seems, like, within, during", sense{}},
	{"try, retry, wait, awhile, continue, resume, restart, refresh, check, run, see, visit, contact, switch, change, select, selected, choose, use, using, used, set, get, obtain, learn, help, ask, manage, view, go, enable, reduce, shorten, decrease, increase, raise, click, create, start, open, send, resend, specify, make, sure, want, need, exceed, available, limits, reset, apply, provide, request, requested, made, make, per, maximum, max, minimum, total, number, amount, size, length, count, free, found, auto-detect, paid, pro, plus, basic, premium, standard, individual, personal, business, enterprise, usage-based, additional, extra, included, remaining, left, temporary, temporarily, period, window, cycle, time, times, hour, minute, second, day, week, month, date, moment, today, tomorrow, midnight, am, pm, utc", sense{}},
	{"admin, administrator, owner, sales, support, team, member, console, settings, setting, config, configuration, environment, variable, url, link, docs, page, dashboard, details, information, info, id, name, type, status, code, message, reason, cause, problem, last, first, previous, next, attempt, attempts, client, remote, local, web, app, cli, browser, device, file, chat, thread, text, image, data, cache, reasoning, thinking, developer, preview, beta, release, version, base, generate, generation, complete, completed, completion, correctly, successfully, unexpectedly, prematurely, closing, sending, receiving, reading, connecting, contacting, waiting, processing, communicating, authenticated, associated, supported, allowed, specific, following, selected, valid, active, enabled, correct, multiple, several, long, short, large, small, high, low, traffic, load, demand, capacity, compute, resources, resource, interactive, consumer, oauth, google, openai, anthropic", sense{}},
}

const maxPhrase = 5 // words of a phrase

// lexicon maps the phrases to their senses.
var lexicon = sync.OnceValue(func() map[string]sense {
	m := map[string]sense{}
	for _, row := range words {
		for phrase := range strings.SplitSeq(row.phrases, ", ") {
			s := m[phrase]
			s.subject |= row.sense.subject
			s.predicate |= row.sense.predicate
			s.class = cmp.Or(s.class, row.sense.class)
			s.trait |= row.sense.trait
			m[phrase] = s
		}
	}
	return m
})

// word is a word or a phrase of a text.
type word struct {
	sense
	text     string
	quoted   bool // between quotation marks
	sentence int  // number of its sentence
	known    bool // it is in the vocabulary
	name     bool // a number, a name, a path or a part of code
}

var (
	wordPattern  = lazyregexp.New(`[\pL\d~@$%]+(?:[-./'][\pL\d~@$%]+)*`)
	partPattern  = lazyregexp.New(`\p{Lu}*[^\p{Lu}]*`) // of RateLimitError
	halfPattern  = lazyregexp.New(`[^/]+`)             // of cost/call
	twoWords     = lazyregexp.New(`^[\pL'-]+/[\pL'-]+$`)
	sentenceEnd  = lazyregexp.New(`[.!?;{}·|]|[,:]["']`)
	sentenceEnd2 = lazyregexp.New(`[.!?;{}·|"\\]|[,:]'`) // of an error, which may be an object
)

// readWords splits a text into words and phrases. Names of codes count as their words: rate_limit_error, RateLimitError.
func readWords(text string, isError bool) []word {
	var raw []word
	end, at, w := sentenceEnd, 0, word{}
	if isError {
		end = sentenceEnd2
	}
	for _, loc := range wordPattern.FindAllStringIndex(text, -1) {
		gap, token := text[at:loc[0]], text[loc[0]:loc[1]]
		at = loc[1]
		if end.MatchString(gap) {
			w.sentence++
		}
		w.quoted = w.quoted != ((strings.Count(gap, `"`)+strings.Count(gap, "`"))%2 == 1)
		pattern := partPattern
		if twoWords.MatchString(token) {
			pattern = halfPattern
		}
		for _, part := range pattern.FindAllStringIndex(token, -1) {
			if w.text = strings.Trim(token[part[0]:part[1]], "./"); w.text != "" {
				raw = append(raw, w)
			}
		}
	}
	return phrases(raw)
}

// phrases joins words to the longest phrases of the vocabulary.
func phrases(raw []word) (list []word) {
	for i := 0; i < len(raw); {
		n, found := 0, sense{}
		for k := 1; k <= maxPhrase && i+k <= len(raw) && raw[i+k-1].sentence == raw[i].sentence; k++ {
			if s, ok := findPhrase(raw[i : i+k]); ok {
				n, found = k, s
			}
		}
		w := raw[i]
		if n > 0 {
			w.sense, w.known = found, true
			for _, more := range raw[i+1 : i+n] {
				w.text += " " + more.text
			}
		} else {
			first, _ := utf8.DecodeRuneInString(w.text)
			w.name = !unicode.IsLower(first) || strings.ContainsAny(w.text, "0123456789/@_.") || len(w.text) == 1
		}
		list = append(list, w)
		i += max(n, 1)
	}
	return list
}

// findPhrase finds a phrase in the vocabulary. Its last word may be a plural or a genitive.
func findPhrase(list []word) (sense, bool) {
	var b strings.Builder
	for i, w := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.ToLower(w.text))
	}
	phrase := b.String()
	for _, ending := range []string{"", "'s", "s", "es"} {
		if base, ok := strings.CutSuffix(phrase, ending); ok {
			if s, ok := lexicon()[base]; ok {
				return s, true
			}
		}
	}
	return sense{}, false
}

// meaning is what the grammar reads in a text.
type meaning struct {
	class     class
	alive     bool   // the program retries by itself
	own       bool   // the program speaks to its user
	prose     bool   // it has words of a text about messages
	bare      bool   // any program may say it
	certain   bool   // the words say it, not only the status
	unsure    bool   // the text is not understood, but it is an error
	limit     string // words of a limit without a predicate
	subject   string
	predicate string
	why       string // why the text is no message
}

const (
	farthest  = 7    // words between a subject and its predicate
	mostOther = 0.34 // greatest part of other words in the sentence of a message
	otherIf   = 0.6  // the same after the name of an error
)

// retrying matches what programs print while they retry.
var retrying = lazyregexp.New(`(?i)(?:\bretrying (?:in|after) [\d.]+ ?[a-z]+|\bretrying(?:\.\.\.|…|$)|\breconnecting(?:\.\.\.|…)|\bretrying (?:with backoff|\d+/\d+)|\bretrying [\w ]{0,30}\(?(?:attempt )?#?\d+(?:/| of )\d+|^\[?retry(?:ing)?\b.{0,20} attempt \d+)`)

// lastTry matches the count of the last of several attempts.
var lastTry = lazyregexp.New(`\b(\d+)(?:/| of )(\d+)\b`)

// readMeaning reads a text of one message. isError means that it was printed as an error, for example by an event.
func readMeaning(text string, isError, known bool) (m meaning, env envelope) {
	env = openEnvelope(text)
	isError = isError || env.form != ""
	if quotedForm.MatchString(text) || !isError && codeForm.MatchString(text) {
		return meaning{why: "position: the line is a quotation, code or an item of a list"}, env
	}
	list := readWords(env.text, isError)
	for i, w := range list {
		if goesOnAt(list, i) {
			return meaning{why: "predicate: the program goes on, because of the word " + w.text}, env
		}
		m.addTraits(w)
	}
	m.alive = retries(text)
	for first, end := 0, 0; first < len(list); first = end {
		for end < len(list) && list[end].sentence == list[first].sentence {
			end++
		}
		m.readSentence(list[first:end], isError)
	}
	if m.class == noClass && m.why == "" && (isError || known) && !m.prose {
		m.class, m.subject = statuses[env.status], env.status
	}
	return m, env
}

// addTraits adds what a word alone says about the text.
func (m *meaning) addTraits(w word) {
	if lower := strings.ToLower(w.text); m.limit == "" && (w.subject&ofLimit != 0 && strings.Contains(lower, "limit") || lower == "quota") {
		m.limit = w.text
	}
	m.own = m.own || w.is(addressed|period)
	m.prose = m.prose || w.is(proseWord)
}

// retries reports whether the program says that it tries again by itself, and not for the last time.
func retries(text string) bool {
	if !strings.Contains(text, "etry") && !strings.Contains(text, "econnecting") {
		return false
	}
	n := lastTry.FindStringSubmatch(text)
	return retrying.MatchString(text) && (n == nil || n[1] != n[2])
}

// goesOnAt reports whether a word means that the program goes on, whatever else its text says.
func goesOnAt(list []word, i int) bool {
	if list[i].trait&(goesOn|proseWord) == goesOn|proseWord {
		return true
	}
	first := i == 0 || list[i-1].sentence != list[i].sentence || list[i-1].text == "temporarily"
	return first && strings.EqualFold(list[i].text, "switching")
}

// readSentence adds the meaning of one sentence.
func (m *meaning) readSentence(s []word, isError bool) {
	got := pair(s)
	if got.class == noClass {
		return
	}
	if why := got.objection(s, isError); why != "" {
		m.why = cmp.Or(m.why, why)
		return
	}
	if m.class == noClass || weak(m.class) && !weak(got.class) {
		m.class, m.subject, m.predicate, m.certain = got.class, got.subject, got.predicate, true
		m.bare = got.bare || got.class == limitClass && slices.Contains([]string{"rate limit", "limit", "quota", "rate"}, strings.ToLower(got.subject))
	}
}

// objection says why the sentence with the pair is no message; "" if it is one.
func (f *found) objection(s []word, isError bool) string {
	most, others, words := mostOther, 0, 0
	if isError {
		most = otherIf
	}
	for i, w := range s {
		switch {
		case w.is(proseWord):
			return "position: prose, because of the word " + w.text
		case w.is(goesOn):
			return "predicate: the program goes on, because of the word " + w.text
		case w.is(ifWord) && i < f.at:
			return "position: a condition, because of the word " + w.text
		case w.quoted && i == f.at && !isError:
			return "position: a quotation"
		case w.known:
			words++
		case !w.name:
			words, others = words+1, others+1
		}
	}
	if others > 1 && float64(others) > most*float64(words) {
		return "position: prose, because of other words"
	}
	return ""
}

func weak(c class) bool { return c >= turnsClass }

// found is a pair of a subject and a predicate in a sentence.
type found struct {
	class     class
	at        int  // index of its first word
	distance  int  // between subject and predicate
	bare      bool // any program may say it
	subject   string
	predicate string
}

// yields reports whether another pair is more important. What fails only by the way, such as a request, yields to its
// reason; else the first pair counts.
func (f *found) yields(to *found) bool {
	switch {
	case f.class == noClass, f.class == throttledClass && (to.class == loginClass || to.class == accessClass):
		return true
	case weak(f.class) != weak(to.class):
		return weak(f.class)
	default:
		return to.at < f.at || to.at == f.at && to.distance < f.distance
	}
}

// pair returns the most important pair of a sentence, or the words that say it alone.
func pair(s []word) (best found) {
	limited := slices.ContainsFunc(s, func(w word) bool { return w.is(period) && !strings.EqualFold(w.text, "session") })
	for i, w := range s {
		adjective := i > 0 && strings.HasSuffix(w.text, "ed") && (s[i-1].text == "a" || s[i-1].text == "an")
		if one := (found{class: w.class, at: i, bare: w.is(bareWord), subject: w.text, predicate: w.text}); w.class != noClass && !adjective && best.yields(&one) {
			best = one
		}
		for j := max(0, i-farthest); j <= min(len(s)-1, i+farthest) && w.subject != 0; j++ {
			two := found{at: min(i, j), distance: max(i-j, j-i), subject: w.text, predicate: s[j].text}
			two.class = meaningOf(s, i, j, limited)
			if two.class != noClass && best.yields(&two) {
				best = two
			}
		}
	}
	return best
}

// meaningOf returns the class of the subject at index i with the predicate at index j. limited means that the sentence names
// the period of a limit.
func meaningOf(s []word, i, j int, limited bool) class {
	first, last := min(i, j), max(i, j)
	if i == j || s[j].predicate == isError && last-first > 1 || slices.ContainsFunc(s[first:last], startsClause) {
		return noClass
	}
	for _, row := range meanings {
		if row.subject&s[i].subject != 0 && row.predicate&s[j].predicate != 0 {
			if row.class == contextClass && limited {
				return limitClass
			}
			return row.class
		}
	}
	return noClass
}

// startsClause reports whether a word begins another clause, so that a pair does not cross it.
func startsClause(w word) bool {
	return slices.Contains([]string{"due", "because", "but", "since", "after", "while", "which", "before"}, w.text)
}

// layers describes what the layers found, for an explanation.
func (m *meaning) layers(env envelope, t timing) string {
	var list []string
	for _, layer := range [][2]string{{"envelope", cmp.Or(env.form, env.status)}, {"subject", m.subject}, {"predicate", m.predicate}, {"time", t.stated}} {
		if layer[1] != "" {
			list = append(list, layer[0]+" "+layer[1])
		}
	}
	return strings.Join(list, ", ")
}
