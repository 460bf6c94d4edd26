// What HTML can't do by itself: times that go on, the state of the connection,
// dialogs, copying. The rest of the page works without it.
(() => {
	"use strict";
	const $ = (id) => document.getElementById(id);
	let ahead = 0; // of the server's clock, in milliseconds

	// The same as in clock.go: what the server writes is what stands here a moment
	// later.
	const two = (n) => String(n).padStart(2, "0");
	const span = (ms) => {
		const s = Math.max(Math.round(ms / 1000), 0), f = Math.floor;
		if (s < 60) return s + " s";
		if (s < 3600) return f(s / 60) + " min " + two(s % 60) + " s";
		if (s < 86400) return f(s / 3600) + " h " + two(f(s / 60) % 60) + " min";
		return f(s / 86400) + " d " + two(f(s / 3600) % 24) + " h";
	};
	const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
	const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
	const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
	const write = (el, text) => { if (el.textContent !== text) el.textContent = text; };

	const times = () => {
		const now = Date.now() + ahead;
		for (const el of document.querySelectorAll("time[datetime]")) {
			const t = Date.parse(el.dateTime), d = el.dataset;
			if ("in" in d) write(el, t > now ? "in " + span(t - now) : "due now");
			else if ("ago" in d) write(el, span(now - t) + " ago");
			else if ("since" in d) write(el, span(now - t));
			else if ("at" in d) write(el, (new Date(t).toDateString() === new Date(now).toDateString() ? clock : day).format(t));
			const title = full.format(t);
			if (el.title !== title) el.title = title;
		}
	};
	const server = (ms) => { if (ms > 0) ahead = ms - Date.now(); };

	// The connection.
	const link = $("link"), source = $("source");
	let heard = Date.now(), connection = null, again = 500;
	const say = (state, text) => {
		if (!link || link.dataset.state === state) return;
		link.dataset.state = state;
		link.textContent = text;
	};
	const lost = () => say("lost", "reconnecting…");
	const found = () => { heard = Date.now(); again = 500; say("live", "live"); };
	document.addEventListener("htmx:sse:after:connection", (e) => { connection = e.detail.connection; found(); });
	document.addEventListener("htmx:sse:before:connection", (e) => { if (e.detail.connection.attempt > 0) lost(); });
	document.addEventListener("htmx:sse:error", lost);
	document.addEventListener("htmx:sse:after:message", found);
	document.addEventListener("beat", (e) => server(Number(e.detail.data)));
	document.addEventListener("htmx:sse:close", (e) => { if (e.detail.reason === "message") say("gone", "no longer kept"); });
	// Nobody waits for what the extension itself has ended.
	addEventListener("unhandledrejection", (e) => { if (e.reason?.name === "AbortError") e.preventDefault(); });
	// The extension makes a connection again, but not the first one.
	const retry = (e) => {
		if (e.target !== source || e.detail.ctx?.response?.status < 400) return;
		lost();
		setTimeout(() => source.dispatchEvent(new Event("reconnect")), again);
		again = Math.min(again * 2, 8000);
	};
	document.addEventListener("htmx:error", retry);
	document.addEventListener("htmx:response:error", retry);

	setInterval(() => {
		times();
		// Silence: a laptop that slept, a cable that was pulled.
		if (connection && link?.dataset.state === "live" && !document.hidden && Date.now() - heard > 35000) {
			lost();
			connection.reader?.cancel();
		}
	}, 1000);

	// Dialogs. A click with a modifier, or without all this, opens the question as
	// a page.
	const dialog = $("dialog");
	const copied = (button, text) => {
		const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
		if (navigator.clipboard) { navigator.clipboard.writeText(text).then(done, () => {}); return; }
		const area = document.createElement("textarea"); // pages that are not from https or this machine
		area.value = text;
		document.body.append(area);
		area.select();
		if (document.execCommand("copy")) done();
		area.remove();
	};
	document.addEventListener("click", (e) => {
		const plain = !(e.ctrlKey || e.metaKey || e.shiftKey || e.button);
		const ask = e.target.closest("a[data-dialog]");
		if (ask && plain && dialog?.showModal) {
			e.preventDefault();
			htmx.ajax("GET", ask.getAttribute("href"), { target: "#dialog-body", swap: "innerHTML" }).then(() => { if (!dialog.open) dialog.showModal(); });
			return;
		}
		if (e.target.closest("[data-close]") && dialog?.open && plain) {
			e.preventDefault();
			dialog.close();
			return;
		}
		const copy = e.target.closest("button.copy");
		if (copy) copied(copy, copy.dataset.copy ?? copy.nextElementSibling.textContent);
	});
	document.addEventListener("done", () => dialog?.close());
	document.addEventListener("change", (e) => { if (e.target.matches("[data-submit]")) e.target.form.requestSubmit(); });

	// What comes by the stream is put into the reader's zone before it is painted.
	server(Number($("clock")?.dataset.now));
	times();
	new MutationObserver(times).observe($("main"), { childList: true, subtree: true, characterData: true });
})();
