// Time: it plays, it is dragged, it goes step by step. A step is something that happened.
import { byId } from "./elements.js";

const SPEED = 0.6; // seconds of the run in a second of ours

export class Player {
  constructor(moved, stepBack) {
    this.at = 0;
    this.tape = null;
    this.playing = false;
    this.moved = moved;
    this.stepBack = stepBack;
    byId("play").addEventListener("click", () => this.toggle());
    byId("forward").addEventListener("click", () => this.forward());
    byId("back").addEventListener("click", () => this.back());
    byId("first").addEventListener("click", () => this.go(0));
    byId("last").addEventListener("click", () => this.go(this.tape.length));
    byId("time").addEventListener("input", (event) => this.go(Number(event.target.value)));
  }

  take(tape, at) {
    this.tape = tape;
    byId("time").max = tape.length;
    this.show(Math.min(at, tape.length));
  }

  show(at) {
    this.at = Math.min(Math.max(at, 0), this.tape.length);
    const slider = byId("time");
    slider.value = this.at;
    slider.setAttribute("aria-valuetext", `${this.at.toFixed(2)} seconds`);
    byId("now").textContent = `${this.at.toFixed(3)} s`;
    this.moved(this.at, this.playing);
  }

  go(at) {
    this.stop();
    this.show(at);
  }

  forward() {
    const next = this.tape.events.find((one) => one.at > this.at);
    this.go(next ? next.at : this.tape.length);
  }

  back() {
    const before = this.tape.events.filter((one) => one.at < this.at);
    this.stop();
    this.stepBack(before.length ? before[before.length - 1].at : 0);
  }

  toggle() {
    if (this.playing) { this.stop(); this.moved(this.at, false); return; }
    if (this.at >= this.tape.length) this.at = 0;
    this.playing = true;
    this.sign();
    let last = performance.now();
    const frame = (moment) => {
      if (!this.playing) return;
      const next = this.at + Math.max(0, (moment - last) / 1000) * SPEED;
      last = moment;
      if (next >= this.tape.length) { this.go(this.tape.length); return; }
      this.show(next);
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  stop() {
    this.playing = false;
    this.sign();
  }

  sign() {
    const button = byId("play");
    button.textContent = this.playing ? "■" : "▶";
    button.setAttribute("aria-label", this.playing ? "Stop" : "Play");
  }
}
