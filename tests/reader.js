// What a reader would stumble over on this page: a list of texts, empty where all is well.
// Layout: nothing wider than the window, nothing cut.  Accessibility: names, labels, language, order, contrast.
(() => {
  const found = [];
  const name = (node) => {
    const own = node.id ? "#" + node.id : node.getAttribute("class") ? "." + node.getAttribute("class") : "";
    return `<${node.tagName.toLowerCase()}${own}> ${(node.textContent || "").trim().slice(0, 60)}`;
  };
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const root = document.documentElement;

  // ---- layout
  if (root.scrollWidth > innerWidth) found.push(`the page is ${root.scrollWidth} wide in a window of ${innerWidth}`);
  const scrolls = (node) => {
    for (let box = node.parentElement; box && box !== document.body; box = box.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return true;
    return false;
  };
  for (const node of all("main *, article *, header *, footer *")) {
    if (node.closest("svg") && node.tagName !== "svg") continue;
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    if (!box.width || !shown(node) || style.position === "absolute" || style.position === "fixed") continue;
    if (box.right > innerWidth + 1 && box.left < innerWidth && !scrolls(node))
      found.push(`beyond the window: ${name(node)}`);
    if (["hidden", "clip"].includes(style.overflowX) && node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 1)
      found.push(`cut: ${name(node)}`);
  }

  // ---- names and order
  if (!root.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  const named = (node) => [node.getAttribute("aria-label"), node.title, node.textContent, node.getAttribute("alt"),
    ...[...node.querySelectorAll("img, svg")].map((inner) => inner.getAttribute("alt") || inner.getAttribute("aria-label")),
    ...(node.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent),
    ...[...(node.labels || [])].map((label) => label.textContent || label.getAttribute("aria-label"))].some((text) => text?.trim());
  const hidden = (node) => node.closest("[aria-hidden=true]") || node.type === "hidden" || !shown(node);
  for (const node of all("img")) if (!node.hasAttribute("alt") && !hidden(node)) found.push(`no alt text: ${node.src.slice(-60)}`);
  for (const node of all("svg[role=img], canvas, a[href], button, input, select, textarea, [role=region], [role=group]"))
    if (!hidden(node) && !named(node) && !(node.tagName === "INPUT" && node.type === "submit"))
      found.push(`no name: ${name(node)} ${node.outerHTML.slice(0, 90)}`);
  const levels = all("h1, h2, h3, h4, h5, h6").filter(shown).map((node) => Number(node.tagName[1]));
  if (levels[0] !== 1 || levels.filter((level) => level === 1).length !== 1) found.push(`headings: ${levels.join(" ")}`);
  levels.forEach((level, k) => { if (k && level > levels[k - 1] + 1) found.push(`heading ${k + 1}: h${levels[k - 1]}, then h${level}`); });
  const ids = all("[id]").map((node) => node.id);
  for (const id of new Set(ids.filter((id, k) => ids.indexOf(id) !== k))) found.push(`twice: id ${id}`);
  for (const node of all("th")) // but for the corner of a table
    if (!hidden(node) && !node.textContent.trim() && (node.cellIndex || node.parentElement.rowIndex))
      found.push("a heading of a table is empty");

  // ---- contrast, by the formula of the Web Content Accessibility Guidelines
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
    .getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const channels = (colour) => {
    if (!known.has(colour)) {
      context.clearRect(0, 0, 1, 1);
      context.fillStyle = "#0000";
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = ([r, g, b, a], ground, share = 1) =>
    [r, g, b].map((c, k) => c * a * share + ground[k] * (1 - a * share));
  const ground = (node) => {
    const layers = [];
    for (let box = node; box; box = box.parentElement) layers.push(box);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(root).colorScheme.includes("dark");
    let colour = dark ? [18, 18, 18] : [255, 255, 255];
    for (const box of layers.reverse()) if (!box.ownerSVGElement) colour = over(channels(getComputedStyle(box).backgroundColor), colour);
    return colour;
  };
  const opacity = (node) => {
    let share = 1;
    for (let box = node; box; box = box.parentElement) share *= Number(getComputedStyle(box).opacity);
    return share;
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const said = new Set();
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!text.data.trim() || node.closest("script, style, noscript, annotation") || hidden(node)) continue;
    const style = getComputedStyle(node), picture = node.closest("svg");
    let behind = ground(node);
    if (picture) {
      const place = node.getBoundingClientRect(), x = place.x + place.width / 2, y = place.y + place.height / 2;
      const inside = (shape) => {
        const box = shape.getBoundingClientRect();
        return box.left <= x && x <= box.right && box.top <= y && y <= box.bottom &&
          shape.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING;
      };
      if ([...picture.querySelectorAll("image")].some(inside)) continue; // inks for cells are chosen one by one
      for (const shape of [...picture.querySelectorAll("rect, path, polygon, ellipse")].filter(inside)) {
        const look = getComputedStyle(shape);
        if (look.fill !== "none") behind = over(channels(look.fill), behind, Number(look.fillOpacity) * Number(look.opacity));
      }
    }
    const ink = over(channels(picture ? style.fill : style.color), behind,
                     opacity(node) * (picture ? Number(style.fillOpacity) : 1));
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(ink, behind);
    const key = `${node.className.baseVal ?? node.className}|${ink.map(Math.round)}|${behind.map(Math.round)}`;
    if (ratio < (large ? 3 : 4.5) && !said.has(key)) {
      said.add(key);
      found.push(`contrast ${ratio.toFixed(2)}: ${name(node)} (${ink.map(Math.round)} on ${behind.map(Math.round)})`);
    }
  }
  return found;
})()
