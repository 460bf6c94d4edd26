// Running clocks, the state of the connection, dialogs, copy buttons and keys. The page works
// without this script.
(() => {
	"use strict";
	const $ = (id) => document.getElementById(id);
	let ahead = 0; // how far the server's clock is ahead of the browser's, in milliseconds

	// The same format as in clock.go, so that the text does not change when it is updated.
	const two = (n) => String(n).padStart(2, "0");
	const span = (ms) => {
		const s = Math.max(Math.round(ms / 1000), 0), f = Math.floor;
		if (s < 60) return s + " s";
		if (s < 3600) return f(s / 60) + " min " + two(s % 60) + " s";
		if (s < 86400) return f(s / 3600) + " h " + two(f(s / 60) % 60) + " min";
		return f(s / 86400) + " d " + two(f(s / 3600) % 24) + " h";
	};
	const hours = document.documentElement.dataset.clock === "24h" ? { hourCycle: "h23" } : {};
	const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long", ...hours });
	const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short", ...hours });
	const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short", ...hours });
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
	// A delayed message makes the server's clock look behind. So use the largest of the last
	// differences, which belongs to the message with the smallest delay.
	const differences = [];
	const server = (ms) => {
		if (!(ms > 0)) return;
		differences.push(ms - Date.now());
		if (differences.length > 6) differences.shift();
		ahead = Math.max(...differences);
	};

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
	// Ignore the rejection of a connection that the extension itself has aborted.
	addEventListener("unhandledrejection", (e) => { if (e.reason?.name === "AbortError") e.preventDefault(); });
	// The extension reconnects after a lost connection, but not if the first one fails.
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
		// No message for too long: the computer was asleep, or the network is gone.
		if (connection && link?.dataset.state === "live" && !document.hidden && Date.now() - heard > 35000) {
			lost();
			connection.reader?.cancel();
		}
	}, 1000);

	// Dialogs. A click with a modifier, or without JavaScript, opens the question as a page.
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
	document.addEventListener("click", (e) => { for (const menu of document.querySelectorAll(".more[open]")) if (!menu.contains(e.target)) menu.open = false; });

	// Keyboard shortcuts, listed on /keys, which can also turn them off. They are ignored in text
	// fields and while a dialog is open.
	const off = "tideover-keys-off";
	const stored = () => { try { return localStorage.getItem(off); } catch { return null; } };
	const store = (on) => { try { if (on) localStorage.removeItem(off); else localStorage.setItem(off, "1"); } catch { /* for this page only */ } keys = on; };
	let keys = !stored(), going = 0;
	const entries = () => [...document.querySelectorAll("#rows tr, .letters tbody tr, .groups tbody tr, .entries li")].map((e) => e.querySelector("a[href]")).filter(Boolean);
	const step = (by) => {
		const list = entries(), at = list.findIndex((a) => a.closest("tr, li").contains(document.activeElement));
		list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + by, 0), list.length - 1)]?.focus();
	};
	const follow = (selector) => document.querySelector(selector)?.click();
	const pressed = {
		"?": () => follow("#help"), "/": () => document.querySelector("input[type=search]")?.focus(),
		j: () => step(1), k: () => step(-1), ".": () => follow("a[rel=next]"), ",": () => follow("a[rel=first]"), g: () => { going = Date.now(); },
	};
	document.addEventListener("keydown", (e) => {
		if (!keys || e.ctrlKey || e.metaKey || e.altKey || e.isComposing || dialog?.open || e.target.closest("input, select, textarea, [contenteditable]")) return;
		const to = Date.now() - going < 1500 && $("help")?.dataset.go.split(" ").find((go) => go[0] === e.key);
		going = 0;
		if (!to && !Object.hasOwn(pressed, e.key)) return;
		e.preventDefault();
		if (to) location.assign(to.slice(1)); else pressed[e.key]();
	});
	const box = () => { const b = $("shortcuts"); if (b) b.checked = keys; };
	document.addEventListener("htmx:after:swap", box);
	document.addEventListener("change", (e) => { if (e.target.id === "shortcuts") store(e.target.checked); });
	document.addEventListener("change", (e) => { if (e.target.matches("[data-submit]")) e.target.form.requestSubmit(); });

	// Runs that the user has chosen stay chosen when the list is updated.
	const chosen = new Set();
	const boxes = () => document.querySelectorAll("input[form=chosen]");
	for (const b of boxes()) if (b.checked) chosen.add(b.value);
	document.addEventListener("change", (e) => {
		if (!e.target.matches("input[form=chosen]")) return;
		if (e.target.checked) chosen.add(e.target.value); else chosen.delete(e.target.value);
		choose();
	});
	document.addEventListener("change", (e) => {
		if (e.target.id !== "choose-all") return;
		for (const b of boxes()) if (e.target.checked) chosen.add(b.value); else chosen.delete(b.value);
		choose();
	});
	const choose = () => {
		for (const b of boxes()) b.checked = chosen.has(b.value);
		const all = $("choose-all");
		if (all) all.checked = [...boxes()].every((b) => b.checked);
		const none = ![...boxes()].some((b) => b.checked);
		for (const b of document.querySelectorAll("#chosen button")) if (b.disabled !== none) b.disabled = none;
	};

	// Times in an update are converted to the browser's time zone before the update is painted.
	server(Number($("clock")?.dataset.now));
	times();
	box();
	choose();
	new MutationObserver(() => { times(); choose(); }).observe($("main"), { childList: true, subtree: true, characterData: true, attributeFilter: ["disabled"] });
})();
