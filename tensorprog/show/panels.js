// Panels of densities and convergence that can be pointed at, drawn by uPlot over the still pictures of the same.
// Without scripts, and on paper, the still pictures are what is seen.
(() => {
  const css = getComputedStyle(document.documentElement);
  const ink = () => css.getPropertyValue("--ink").trim();
  const colour = (hex) => hex === "#000000" ? ink() : css.getPropertyValue(`--c${hex.slice(1)}`).trim() || hex;
  const short = (value) => value == null ? "" : Number(value.toPrecision(4)).toString().replace("-", "\u2212");
  const panels = [...document.querySelectorAll("script.readings")].map((node) =>
    ({ ...JSON.parse(node.textContent), figure: node.closest("figure") }));

  // curves have places of their own: the reading of each is that at its nearest place
  const nearest = (plot, series, index, x) => {
    const xs = plot.data[0], ys = plot.data[series];
    if (series === 0) return index;
    let best = null;
    for (let k = 0; k < xs.length; k++)
      if (ys[k] != null && (best === null || Math.abs(xs[k] - x) < Math.abs(xs[best] - x))) best = k;
    return best;
  };

  const draw = (panel, box, logarithmic) => {
    box.replaceChildren();
    const { curves, limits, scales } = panel, pixels = window.devicePixelRatio || 1;
    const data = uPlot.join(curves.map((curve) => [curve.x, curve.y.map((y) => logarithmic && y <= 0 ? null : y)]));
    const errors = curves.map((curve) => new Map(curve.x.map((x, k) => [x, curve.errors[k] || 0])));
    const bars = (plot) => curves.forEach((curve, c) => {
      if (!curve.errors.length || !plot.series[c + 1].show) return;
      const context = plot.ctx;
      context.save();
      context.beginPath();
      context.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
      context.clip();
      context.strokeStyle = colour(curve.colour);
      context.lineWidth = pixels;
      context.setLineDash([]);
      context.beginPath();
      curve.x.forEach((x, k) => {
        const y = curve.y[k], error = curve.errors[k], low = y - error;
        if (y == null || (logarithmic && y <= 0)) return;
        const place = plot.valToPos(x, "x", true);
        context.moveTo(place, plot.valToPos(y + error, "y", true));
        context.lineTo(place, logarithmic && low <= 0 ? plot.bbox.top + plot.bbox.height : plot.valToPos(low, "y", true));
      });
      context.stroke();
      context.restore();
    });
    const value = (c) => (plot, y, series, index) => {
      const error = index == null ? 0 : errors[c].get(plot.data[0][index]);
      return short(y) + (error ? ` \u00b1 ${short(error)}` : "");
    };
    const values = curves.flatMap((curve) => curve.y).filter((y) => y > 0);
    const least = limits[2] > 0 ? limits[2] : Math.min(...values) / 2;
    const lowest = logarithmic ? least : scales[1] === "log" ? 0 : limits[2];
    const axis = (label, log) => ({
      label, stroke: ink, labelFont: "13px sans-serif", font: "12px sans-serif", labelSize: 22,
      grid: { stroke: "#80808030", width: 1 }, ticks: { stroke: "#80808080", width: 1 },
      values: (plot, ticks) => ticks.map((tick) => tick == null ? "" : log && (tick < 1e-2 || tick > 1e4)
        ? tick.toExponential(0).replace("-", "\u2212") : short(tick)),
    });
    const across = axis(panel.x, scales[0] === "log");
    if (scales[0] === "log") {  // widths, at each of which there is a tick
      across.splits = () => curves[0].x;
      across.filter = (plot, ticks) => ticks;
    }
    const plot = new uPlot({
      width: Math.max(240, box.clientWidth), height: 300, legend: { live: true, markers: { dash: (_, k) => k && curves[k - 1].dashed ? "dashed" : "solid" } }, hooks: { draw: [bars] },
      cursor: { dataIdx: nearest, points: { size: 7 } },
      scales: {
        x: { time: false, distr: scales[0] === "log" ? 3 : 1, range: limits.slice(0, 2) },
        y: { distr: logarithmic ? 3 : 1, range: [lowest, limits[3]] },
      },
      axes: [across, { ...axis(panel.y, logarithmic), size: 62 }],
      series: [{ label: panel.x, value: (_, x) => short(x) }, ...curves.map((curve, c) => ({
        label: curve.name, class: curve.faint ? "faint" : "told", stroke: () => colour(curve.colour), value: value(c), spanGaps: true, alpha: curve.faint ? 0.5 : 1,
        width: curve.line ? (curve.faint ? 1 : 1.8) : 0, dash: curve.dashed ? [5, 4] : undefined,
        points: { show: curve.points, size: 6, fill: () => colour(curve.colour) },
      }))],
    }, data, box);
    plot.ctx.canvas.setAttribute("role", "img");
    plot.ctx.canvas.setAttribute("aria-label", panel.figure.querySelector("svg").getAttribute("aria-label"));
    return plot;
  };

  for (const panel of panels) {
    const box = document.createElement("div"), tools = document.createElement("div");
    const choice = document.createElement("select"), scale = document.createElement("button");
    let shown = panel, logarithmic = panel.scales[1] === "log";
    const again = () => {
      scale.textContent = logarithmic ? "linear scale" : "logarithmic scale";
      draw(shown, box, logarithmic);
    };
    const alike = panels.filter((other) => other.kind === panel.kind);
    choice.setAttribute("aria-label", "output");
    choice.append(...alike.map((other) => new Option(other.output, other.output, false, other === panel)));
    choice.onchange = () => { shown = alike[choice.selectedIndex]; again(); };
    scale.type = "button";
    scale.onclick = () => { logarithmic = !logarithmic; again(); };
    box.className = "panel";
    tools.className = "tools";
    tools.append(...(alike.length > 1 ? [choice] : []), scale);
    panel.figure.prepend(tools, box);
    again();
    panel.figure.classList.add("pointed");
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  }
})();
