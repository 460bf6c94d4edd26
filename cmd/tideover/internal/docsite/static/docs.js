// Copy buttons, and the search of pages that no server serves. All pages can be read without this
// script.
(() => {
	"use strict";
	// Of a console block, only the commands are copied: lines after a prompt, and lines that
	// continue them.
	const commands = (text) => {
		const list = [];
		let more = false;
		for (const line of text.split("\n")) {
			if (!more && !line.startsWith("$ ")) continue;
			list.push(more ? line : line.slice(2));
			more = line.endsWith("\\");
		}
		return list.length ? list.join("\n") + "\n" : text;
	};
	const copied = (button, text) => {
		const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
		const old = () => { // for pages that are not from https or this machine
			const area = document.createElement("textarea");
			area.value = text;
			document.body.append(area);
			area.select();
			if (document.execCommand("copy")) done();
			area.remove();
		};
		if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, old); else old();
	};
	document.addEventListener("click", (e) => {
		const button = e.target.closest("button.copy");
		if (!button) return;
		const code = button.parentElement.querySelector("code");
		copied(button, code.classList.contains("language-console") ? commands(code.textContent) : code.textContent);
	});
	document.addEventListener("keydown", (e) => {
		if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea")) return;
		e.preventDefault();
		document.getElementById("query").focus();
	});

	// Show the entry of this page, if the table of contents has to be scrolled.
	const contents = document.getElementById("contents"), entry = contents.querySelector("[aria-current]");
	if (entry && entry.offsetTop > contents.clientHeight / 2) contents.scrollTop = entry.offsetTop - contents.clientHeight / 3;

	// The search has the rules of search.go.
	const index = window.docsIndex;
	if (!index) return;
	const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);
	const find = (text, prefix, from) => {
		for (let at = text.indexOf(prefix, from); at >= 0; at = text.indexOf(prefix, at + prefix.length)) {
			if (at === 0 || !isWord(prefix[0]) || !isWord(text[at - 1])) return at;
		}
		return -1;
	};
	const count = (text, prefix, limit) => {
		let n = 0;
		for (let at = find(text, prefix, 0); at >= 0 && n < limit; at = find(text, prefix, at + prefix.length)) n++;
		return n;
	};
	const score = (words, entry) => {
		const title = (entry.page + " " + entry.label).toLowerCase(), heading = entry.heading.toLowerCase(), text = entry.text.toLowerCase();
		let sum = 0;
		for (const w of words) {
			const inTitle = count(title, w, 1), inHeading = count(heading, w, 1), inText = count(text, w, 4);
			if (inTitle + inHeading + inText === 0) return 0;
			sum += 6 * inTitle + 12 * inHeading + inText;
		}
		return sum;
	};
	const excerpt = (text, words) => {
		const first = Math.min(...words.map((w) => find(text.toLowerCase(), w, 0)).filter((i) => i >= 0));
		let start = 0;
		if (first !== Infinity && first > 60) start = Math.min(text.indexOf(" ", first - 60) + 1, first);
		let part = text.slice(start, start + 240);
		if (start + 240 < text.length) part = part.slice(0, part.lastIndexOf(" ")) + " …";
		const p = document.createElement("p");
		if (start > 0) p.append("… ");
		while (part) {
			let at = part.length, length = 0;
			for (const w of words) {
				const i = find(part.toLowerCase(), w, 0);
				if (i >= 0 && (i < at || (i === at && w.length > length))) { at = i; length = w.length; }
			}
			p.append(part.slice(0, at));
			if (length) {
				const m = document.createElement("mark");
				m.textContent = part.slice(at, at + length);
				p.append(m);
			}
			part = part.slice(at + length);
		}
		return p;
	};
	const input = document.getElementById("query");
	const query = (new URLSearchParams(location.search).get("q") ?? "").trim().slice(0, input.maxLength);
	if (!query) return;
	input.value = query;
	const words = query.toLowerCase().split(/\s+/);
	const found = index.map((entry) => ({ entry, n: score(words, entry) })).filter((r) => r.n > 0).sort((a, b) => !!a.entry.last - !!b.entry.last || b.n - a.n).slice(0, 40);
	document.getElementById("found").textContent = (found.length ? found.length + (found.length === 1 ? " section" : " sections") : "Nothing found") + " for “" + query + "”";
	for (const { entry } of found) {
		const item = document.createElement("li"), link = document.createElement("a");
		link.href = entry.url;
		link.textContent = entry.page + (entry.heading === entry.page ? "" : " › " + entry.heading);
		item.append(link, excerpt(entry.text, words));
		document.getElementById("results").append(item);
	}
})();
