// Runs recurrent policies and their environments in the page docs/poke.md, for readers to disturb.
// benchmark/poke.py writes their numbers; tests/test_poke_browser.py compares them with Python.
"use strict";

const poke = (() => {
  const SHOWN = 200; // steps in a plot
  const [ALL, TOLD] = [0, -1]; // what fills the memory before an action, else a number of frames
  const uniform = (limit) => limit * (2 * Math.random() - 1);
  const clip = (x, limit) => Math.min(Math.max(x, -limit), limit);
  const both = ({ truth, read }) => [...truth, ...read];
  const times = (factor, x) => x.map((value) => factor * value);
  const wrap = (angle) => angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
  const numbers = (x) => x.map((value) => value.toFixed(2)).join(", ");
  const sigmoid = (x) => 1 / (1 + Math.exp(-x));
  const dot = (row, x) => row.reduce((sum, weight, k) => sum + weight * x[k], 0);
  const centred = (x) => x.map((value) => value - x.reduce((a, b) => a + b) / x.length);
  const normed = (x) => times((dot(centred(x), centred(x)) / x.length + 1e-5) ** -0.5, centred(x));

  // ---- The network: the actor of rsac.py, without its noise ----

  class Policy {
    constructor(weights) {
      Object.assign(this, weights, { size: weights.hh[0].length });
    }

    empty = () => ({ h: Array(this.size).fill(0), c: Array(this.size).fill(0) });

    // input: [observation | previous action]; the memory before it -> the memory after it
    read(input, memory) {
      const x = this.scaled(input);
      const sums = this.ih.map((row, k) => dot(row, x) + dot(this.hh[k], memory.h) + this.bias[k]);
      const next = this.empty();
      for (let k = 0; k < this.size; k++) {
        const [i, f, g, o] = [0, 1, 2, 3].map((gate) => sums[gate * this.size + k]);
        next.c[k] = sigmoid(f) * memory.c[k] + sigmoid(i) * Math.tanh(g);
        next.h[k] = sigmoid(o) * Math.tanh(next.c[k]);
      }
      return next;
    }

    scaled = (input) => input.map((value, k) => value / this.obs_scale[k]);

    act(input, memory) {
      let x = [...memory.h, ...this.scaled(input)];
      for (const [weight, bias, gain, shift] of this.layers) {
        x = weight.map((row, j) => dot(row, x) + bias[j]);
        if (gain) x = normed(x).map((value, j) => Math.max(0, value * gain[j] + shift[j]));
      }
      return x.map(Math.tanh);
    }
  }

  // ---- Environments ----

  // pendulum-p-v0, envs/pendulum.py
  class Pendulum {
    static picture = "pendulum_p";
    static label = "A pendulum; the torque of its motor is the line below it";
    static unknown = "velocity (rad/s)";
    static reach = 1.45; // from the middle of the drawing to its edge
    static nudges = [["Push ↺", (env) => env.push(1)], ["Push ↻", (env) => env.push(-1)]];
    static panels = [
      ["It sees", ["cos", "sin of the angle"], (t) => t.input.slice(0, 2)],
      ["It does", ["torque, within ±2 N m"], (t) => t.action],
      ["Velocity, ±8 rad/s:", ["true", "in its memory"], (t) => times(1 / 8, both(t))],
    ];

    // state: the angle (rad) from upright, counter-clockwise, and its velocity (rad/s)
    constructor(state = [uniform(Math.PI), uniform(1)]) {
      [this.angle, this.velocity] = state;
      this.torque = 0;
    }

    observe = () => [Math.cos(this.angle), Math.sin(this.angle)];

    step([action]) {
      this.torque = 2 * clip(action, 1);
      this.push(0.05 * (15 * Math.sin(this.angle) + 3 * this.torque));
      this.angle += 0.05 * this.velocity;
    }

    push(change) {
      this.velocity = clip(this.velocity + change, 8);
    }

    get truth() {
      return [this.velocity];
    }

    // What its usual memory is fitted to: products of two of 1, cos, sin, velocity, action
    static situation([cos, sin, action], [velocity]) {
      const x = [1, cos, sin, velocity / 8, action];
      return x.flatMap((value, k) => x.slice(k).map((other) => value * other));
    }

    touch(x, y, pressed) {
      if (pressed) this.push(2 * clip(wrap(Math.atan2(-x, y) - this.angle), 1));
    }

    draw(pen, read) {
      const [x, y] = [-Math.sin(this.angle), Math.cos(this.angle)];
      const ahead = (velocity) => [x - 0.15 * velocity * y, y + 0.15 * velocity * x];
      pen.circle([0, 0], 1, pen.faint, 0.01);
      pen.line([[0, 0], [x, y]], pen.colours[3], 0.16);
      pen.circle([0, 0], 0.05, pen.ink);
      pen.line([[x, y], ahead(this.velocity)], pen.colours[0], 0.06);
      pen.line([[x, y], ahead(read[0])], pen.colours[1], 0.03);
      pen.line([[0, -1.25], [-0.3 * this.torque, -1.25]], pen.ink, 0.05);
    }
  }

  // reacher-pomdp-v0, envs/reacher.py: MuJoCo's equations of this arm, with the stop of its elbow
  class Reacher {
    static picture = "reacher";
    static label = "An arm of two links from above, and its target";
    static unknown = "target (m)";
    static reach = 0.25;
    static nudges = [["←", -0.03, 0], ["→", 0.03, 0], ["↑", 0, 0.03], ["↓", 0, -0.03]].map(
      ([name, x, y]) => [`Target ${name}`, (env) => env.touch(env.truth[0] + x, env.truth[1] + y)]);
    static panels = [
      ["It sees joints, and the target once", [], (t) => t.input.slice(0, 10)],
      ["It does", ["torque 1", "torque 2"], (t) => t.action],
      ["Target:", ["x", "y", "x in its memory", "y"], (t) => times(5, both(t))],
    ];

    // state: two angles (rad), their velocities (rad/s), x and y of the target (m)
    constructor(state) {
      const start = [uniform(0.1), uniform(0.1), uniform(0.005), uniform(0.005), 1, 1];
      while (Math.hypot(...start.slice(4)) >= 0.2) start.splice(4, 2, uniform(0.2), uniform(0.2));
      this.arm = (state || start).slice(0, 4);
      this.truth = (state || start).slice(4);
      this.shown = 1; // then 0: the target is in the first observation only
    }

    joints() {
      const [first, second] = [this.arm[0], this.arm[0] + this.arm[1]];
      const [x, y] = [0.1 * Math.cos(first), 0.1 * Math.sin(first)];
      return [[x, y], [x + 0.11 * Math.cos(second), y + 0.11 * Math.sin(second)]];
    }

    observe() {
      const [q1, q2, ...velocities] = this.arm;
      const gap = this.joints()[1].map((x, k) => this.shown * (x - this.truth[k]));
      const angles = [Math.cos(q1), Math.cos(q2), Math.sin(q1), Math.sin(q2)];
      return [...angles, ...this.truth.map((x) => this.shown * x), ...velocities, ...gap];
    }

    // What angles and velocities change by in a second under torques u
    static slope([, q2, w1, w2], u) {
      // Moments of inertia (kg m^2) about the two joints, with armatures of 1, and between them
      const [inner, outer, both] = [1.0005261225217, 0.000179039365328082, 0.000224100275956072];
      const [cos, sin] = [both * Math.cos(q2), both * Math.sin(q2)];
      const [a, b, d] = [inner + outer + 2 * cos, outer + cos, 1 + outer]; // the mass matrix
      const determinant = a * d - b * b;
      const f1 = 200 * u[0] - w1 + sin * (2 * w1 * w2 + w2 ** 2);
      const f2 = 200 * u[1] - w2 - sin * w1 ** 2;
      const [a1, a2] = [(d * f1 - b * f2) / determinant, (a * f2 - b * f1) / determinant];
      // Beyond 3 rad a soft stop pushes back: MuJoCo's reference acceleration and impedance.
      const [side, beyond] = [Math.sign(q2), Math.abs(q2) - 3];
      if (beyond < 0) return [w1, w2, a1, a2];
      const depth = Math.min(1, beyond / 0.001);
      const impedance = 0.9 + 0.05 * (depth < 0.5 ? 2 * depth ** 2 : 1 - 2 * (1 - depth) ** 2);
      const reference = (2 * side * w2) / 0.019 + (impedance * beyond) / 0.019 ** 2;
      const give = ((1 - impedance) / impedance) * 0.9998211549602818;
      const push = side * Math.max(0, (reference + side * a2) / (a / determinant + give));
      return [w1, w2, a1 + (push * b) / determinant, a2 - (push * a) / determinant];
    }

    step(action) {
      const u = action.map((x) => clip(x, 1));
      const after = (h, k) => this.arm.map((x, j) => x + h * k[j]);
      for (let half = 0; half < 2; half++) {
        const k1 = Reacher.slope(this.arm, u); // Runge-Kutta of order 4
        const k2 = Reacher.slope(after(0.005, k1), u);
        const k3 = Reacher.slope(after(0.005, k2), u);
        const k4 = Reacher.slope(after(0.01, k3), u);
        this.arm = this.arm.map((x, j) => x + (0.01 / 6) * (k1[j] + 2 * (k2[j] + k3[j]) + k4[j]));
      }
      this.shown = 0;
    }

    touch(x, y) {
      const shrink = Math.min(1, 0.2 / Math.hypot(x, y));
      this.truth = [x * shrink, y * shrink];
    }

    draw(pen, read) {
      const [elbow, tip] = this.joints();
      pen.circle([0, 0], 0.2, pen.faint, 0.002);
      pen.line([[0, 0], elbow, tip], pen.colours[3], 0.02);
      pen.circle(tip, 0.01, pen.ink);
      pen.circle(this.truth, 0.012, pen.colours[0], 0.004 * (1 - this.shown));
      pen.circle(read, 0.008, pen.colours[1]);
    }
  }

  const ENVS = { "pendulum-p-v0": Pendulum, "reacher-pomdp-v0": Reacher };

  // ---- One policy in one environment ----

  class Play {
    constructor(data, state) {
      const policy = new Policy(data.weights);
      Object.assign(this, { data, policy, Env: ENVS[data.env], frames: ALL });
      this.start(state);
    }

    start(state) {
      this.env = new this.Env(state);
      this.action = this.policy.layers.at(-1)[1].map(() => 0);
      this.memory = this.policy.empty();
      this.inputs = []; // all that was to be seen, also while the memory was wiped
      this.past = []; // of each step what the plots show
      this.count = 0;
      this.tick();
    }

    tick() {
      if (this.count > 0) this.env.step(this.action);
      this.count += 1;
      const input = [...this.env.observe(), ...this.action];
      this.inputs = [...this.inputs, input].slice(-SHOWN);
      if (this.frames > 0) this.reread(this.inputs.slice(-this.frames, -1));
      this.memory = this.frames === TOLD ? this.usual(input) : this.policy.read(input, this.memory);
      this.action = this.policy.act(input, this.memory);
      this.past = [...this.past, { input, action: this.action }].slice(-SHOWN);
      this.now();
    }

    // The last entry of `past`, with the memory and the truth as they are now
    now() {
      const { h, c } = this.memory;
      const read = this.data.readout.weights.map((row) => dot(row, [...h, 1]));
      return Object.assign(this.past.at(-1), { h, c, read, truth: [...this.env.truth] });
    }

    // What the memory usually is where the environment is now, by a fit
    usual(input) {
      const x = this.Env.situation(input, this.env.truth);
      return { h: this.data.usual.map((row) => dot(row, x)), c: this.policy.empty().c };
    }

    reread(inputs) {
      this.memory = inputs.reduce((m, x) => this.policy.read(x, m), this.policy.empty());
    }
  }

  // ---- Drawing ----

  // A pen for a canvas as wide as its place and `height` high, in CSS pixels; 0: a square
  function penOf(canvas, height) {
    const pen = canvas.getContext("2d");
    const [width, ratio, css] = [canvas.clientWidth, devicePixelRatio, getComputedStyle(canvas)];
    [canvas.width, canvas.height] = [width * ratio, (height || width) * ratio];
    pen.scale(ratio, ratio);
    pen.font = `13px ${css.fontFamily}`;
    [pen.width, pen.ink, pen.paper, pen.faint] = [width, css.color, css.backgroundColor, "#8886"];
    pen.colours = ["#3a8fd0", "#e07b1a", "#2f9e56", "#cc4d4d", "#9b72c8", "#808080"];
    pen.lineCap = pen.lineJoin = "round";
    pen.line = (points, colour, thick) => {
      [pen.strokeStyle, pen.lineWidth] = [colour, thick];
      pen.beginPath();
      points.forEach((point) => pen.lineTo(...point));
      pen.stroke();
    };
    pen.circle = (middle, radius, colour, thick = 0) => {
      [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [colour, colour, thick];
      pen.beginPath();
      pen.arc(...middle, radius, 0, 7);
      thick ? pen.stroke() : pen.fill();
    };
    return pen;
  }

  function drawScene(canvas, play) {
    const pen = penOf(canvas, 0);
    const scale = pen.width / 2 / play.Env.reach;
    pen.transform(scale, 0, 0, -scale, pen.width / 2, pen.width / 2); // y up, as in the equations
    play.env.draw(pen, play.now().read);
  }

  function drawPlots(canvas, play) {
    const pen = penOf(canvas, 340);
    const heading = (y, title, names) =>
      [title, ...names].reduce((x, word, k) => {
        pen.fillStyle = k ? pen.colours[k - 1] : pen.ink;
        pen.fillText(word, x, y);
        return x + pen.measureText(`${word}  `).width;
      }, 0);
    play.Env.panels.forEach(([title, names, values], k) => {
      const middle = 46 + 70 * k;
      heading(middle - 30, title, names);
      pen.line([[0, middle], [pen.width, middle]], pen.faint, 1);
      const rows = play.past.map(values);
      rows[0].forEach((_, j) => {
        const point = (row, x) => [(x * pen.width) / SHOWN, middle - 22 * clip(row[j], 1.1)];
        pen.line(rows.map(point), pen.colours[j % 6], 2);
      });
    });
    const size = play.policy.size;
    heading(226, `Its memory, ${size} numbers:`, ["negative", "positive"]);
    const [map, small] = [new ImageData(SHOWN, size), new OffscreenCanvas(SHOWN, size)];
    const paper = pen.paper.match(/[\d.]+/g).map(Number);
    play.past.forEach(({ h }, x) => h.forEach((value, y) => {
      const full = value > 0 ? [224, 123, 26] : [58, 143, 208];
      const mixed = full.map((colour, k) => paper[k] + Math.abs(value) * (colour - paper[k]));
      map.data.set([...mixed, 255], 4 * (y * SHOWN + x));
    }));
    small.getContext("2d").putImageData(map, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, 0, 232, pen.width, 108);
  }

  // ---- The figure ----

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  const button = (text, onclick) => make("button", { type: "button", onclick }, text);

  function choose(label, options, change) {
    const select = make("select", { onchange: () => change(Number(select.value)) });
    select.append(...options.map(([value, text]) => make("option", { value }, text)));
    return make("label", {}, `${label} `, select);
  }

  // Puts the live figure in the place of the picture, and returns what is at play in it.
  function show(data, picture) {
    const [play, Env] = [new Play(data), ENVS[data.env]];
    let [running, slow, last, due, visible] = [false, 1, 0, 0, true];
    const scene = make("canvas", { className: "poke-scene", role: "img", ariaLabel: Env.label });
    const ariaLabel = "What the policy sees, does and remembers in the last 200 steps";
    const plots = make("canvas", { className: "poke-plots", role: "img", ariaLabel });
    const status = make("p", { className: "poke-status", role: "status" });
    const run = button("", () => turn(!running));
    const draw = () => [drawScene(scene, play), drawPlots(plots, play)];
    const say = (words) => {
      draw();
      const [truth, read] = [play.now().truth, play.now().read].map(numbers);
      const state = ` Step ${play.count}, ${Env.unknown}: ${truth}, in its memory: ${read}.`;
      status.textContent = words + (running ? "" : state);
    };
    const turn = (on) => {
      running = on;
      run.textContent = on ? "Pause" : "Play";
      say(on ? "It runs." : "Paused.");
    };
    const touch = (event, pressed) => {
      const { left, top, width } = scene.getBoundingClientRect();
      const [x, y] = [(event.clientX - left) / width, (event.clientY - top) / width];
      play.env.touch((2 * x - 1) * Env.reach, (1 - 2 * y) * Env.reach, pressed);
      say("Disturbed.");
    };
    scene.onpointerdown = (event) => touch(event, true);
    scene.onpointermove = (event) => event.buttons && touch(event, false);

    const names = { [ALL]: "all since the start", [TOLD]: "true velocity", 1: "this frame alone" };
    const fills = data.returns.map(([frames, mean]) => [
      frames, `${names[frames] || `the last ${frames} frames`} (mean return ${mean})`]);
    const speeds = [[1, "20 steps a second"], [4, "5 steps a second"], [20, "1 step a second"]];
    const controls = [
      run,
      button("Step", () => [play.tick(), turn(false)]),
      button("Start again", () => [play.start(), say("A new start.")]),
      ...Env.nudges.map(([name, act]) => button(name, () => [act(play.env), say("Disturbed.")])),
      button("Wipe its memory", () => [play.reread([]), say("Its memory is empty.")]),
      button("Let it read again", () => [play.reread(play.inputs), say("It has read all again.")]),
      choose("At each step its memory holds", fills, (frames) => (play.frames = frames)),
      choose("Speed", speeds, (times) => (slow = times)),
    ];
    const parts = [scene, plots, make("div", { className: "poke-controls" }, ...controls), status];
    picture.closest("p").replaceWith(make("div", { className: "poke" }, ...parts));
    turn(!matchMedia("(prefers-reduced-motion: reduce)").matches);

    const frame = (now) => {
      due += running && visible ? Math.min(now - last, 250) / slow : 0;
      last = now;
      const before = play.count;
      for (; due >= 50; due -= 50) play.tick(); // 50 ms are a step of the pendulum
      if (play.count > before) draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
    new IntersectionObserver(([entry]) => (visible = entry.isIntersecting)).observe(scene);
    new ResizeObserver(draw).observe(scene);
    new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    return play;
  }

  const shown = [...document.querySelectorAll("script.poke-data")].map((script) => {
    const data = JSON.parse(script.textContent);
    return show(data, document.querySelector(`article img[src*="${ENVS[data.env].picture}"]`));
  });
  return { ENVS, Play, shown };
})();
