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
	const emptyWords = new Set(index.emptyWords), endings = index.endings;
	const stemOf = (w) => {
		const e = endings.find((e) => w.endsWith(e) && w.length - e.length >= 3 && !w.endsWith("ss"));
		return e ? w.slice(0, -e.length) : w;
	};
	const termsOf = (query) => {
		const all = new Map(), meaningful = new Map();
		for (let w of query.toLowerCase().split(/[\s=]+/).filter(Boolean)) {
			w = w.replace(/^[.,;:?!"'“”()]+|[.,;:?!"'“”()]+$/g, "") || w;
			const stem = stemOf(w);
			if (all.has(stem)) continue;
			all.set(stem, { stem });
			if (!emptyWords.has(w)) meaningful.set(stem, all.get(stem));
		}
		return [...(meaningful.size ? meaningful : all).values()].slice(0, 12);
	};
	const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);
	const next = (text, { stem }, from) => {
		for (let at = text.indexOf(stem, from); at >= 0; at = text.indexOf(stem, at + stem.length)) {
			if (at > 0 && isWord(stem[0]) && isWord(text[at - 1])) continue;
			let end = at + stem.length;
			while (isWord(text[end])) end++;
			const rest = text.slice(at + stem.length, end);
			return { at, end, whole: rest === "" || endings.includes(rest) };
		}
		return null;
	};
	const count = (text, term) => {
		let whole = 0, part = 0;
		for (let h = next(text, term, 0); h && whole < 4; h = next(text, term, h.end)) if (h.whole) whole++; else part++;
		return [whole, part];
	};
	const score = (terms, entry) => {
		let sum = 0, all = 0, found = 0;
		for (const t of terms) {
			let n = 0;
			for (const [text, most, points] of [[entry.heading.toLowerCase(), 1, 12], [entry.title, 1, 8], [entry.text.toLowerCase(), 4, 2]]) {
				let [whole, part] = count(text, t);
				whole = Math.min(whole, most);
				n += (2 * whole + Math.min(part, most - whole)) * points / 2;
			}
			all += t.weight;
			if (n > 0) found += t.weight;
			sum += t.weight * n;
		}
		const score = all && Math.floor(sum * (all + 2 * found) / (3 * all));
		return entry.seldom ? Math.floor(score / 2) : score;
	};
	const weigh = (terms) => {
		for (const t of terms) {
			const n = index.sections.filter((e) => next(e.text.toLowerCase(), t, 0) || next(e.heading.toLowerCase(), t, 0)).length;
			t.weight = 32 - Math.clz32(Math.floor(index.sections.length / Math.max(n, 1)));
		}
		return terms;
	};
	const densest = (text, terms) => {
		let best = 0, most = 0;
		for (const t of terms) {
			for (let h = next(text, t, 0); h; h = next(text, t, h.end)) {
				let sum = 0;
				for (const other of terms) {
					const o = next(text, other, h.at);
					if (o && o.end <= Math.min(h.at + 180, text.length)) sum += o.whole ? 2 * other.weight : other.weight;
				}
				if (sum > most || (sum === most && h.at < best)) { most = sum; best = h.at; }
			}
		}
		return best;
	};
	const excerpt = (text, terms) => {
		const first = densest(text.toLowerCase(), terms);
		let start = 0;
		if (first > 60) start = Math.min(text.indexOf(" ", first - 60) + 1, first);
		let part = text.slice(start, start + 240);
		if (start + 240 < text.length) part = part.slice(0, part.lastIndexOf(" ")) + " …";
		const p = document.createElement("p");
		if (start > 0) p.append("… ");
		while (part) {
			let found = { at: part.length, end: part.length };
			for (const t of terms) {
				const h = next(part.toLowerCase(), t, 0);
				if (h && h.at < found.at) found = h;
			}
			p.append(part.slice(0, found.at));
			if (found.at < found.end) {
				const m = document.createElement("mark");
				m.textContent = part.slice(found.at, found.end);
				p.append(m);
			}
			part = part.slice(found.end);
		}
		return p;
	};
	const input = document.getElementById("query");
	const query = (new URLSearchParams(location.search).get("q") ?? "").trim().slice(0, input.maxLength);
	if (!query) return;
	input.value = query;
	const terms = weigh(termsOf(query));
	const found = index.sections.map((entry) => ({ entry, n: score(terms, entry) })).filter((r) => r.n > 0).sort((a, b) => b.n - a.n).slice(0, 40);
	document.getElementById("found").textContent = (found.length ? found.length + (found.length === 1 ? " section" : " sections") : "Nothing found") + " for “" + query + "”";
	for (const { entry } of found) {
		const item = document.createElement("li"), link = document.createElement("a");
		link.href = entry.url;
		link.textContent = entry.page + (entry.heading === entry.page ? "" : " › " + entry.heading);
		item.append(link, excerpt(entry.text, terms));
		document.getElementById("results").append(item);
	}
})();
