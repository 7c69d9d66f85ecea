"use strict";
// node-redlock as a contestant: promises on one thread, the workloads as in the Rust files of the same names.
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
const lines = require("readline").createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const [workload, lock, url, size, part, processes] = process.argv.slice(-6);
const quick = size === "quick";
const client = new Redis(url);
// By default it tries ten times, 200 ms apart.
const redlock = new Redlock([client], lock === "redlock-tuned" ? { retryCount: -1, retryDelay: 5, retryJitter: 0 } : {});
const out = { values: {}, failures: 0, overlaps: 0, problem: null, locks: 0, began: 0, ended: 0, shares: [], holds: [] };

const micros = () => Number(process.hrtime.bigint() / 1000n);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function attempt(key, body) {
  try {
    const held = await redlock.acquire([key], 30000);
    await body();
    await held.release();
    out.locks += 1;
  } catch (error) {
    out.failures += 1;
    out.problem ??= `${error.name}: ${error.message}`;
  }
}

async function ready() {
  await attempt("warm:0", async () => {});
  out.locks = 0;
  console.log("ready");
  await lines.next();
  out.began = micros();
  return performance.now();
}

async function pair() {
  const pairs = quick ? 500 : 5000;
  const [began, each] = [await ready(), []];
  for (let number = 0; number < pairs; number += 1) {
    const started = performance.now();
    await attempt("w1:0", async () => {});
    each.push((performance.now() - started) * 1e3);
  }
  out.values["µs per pair"] = ((performance.now() - began) * 1e3) / pairs;
  each.sort((one, other) => one - other);
  [out.values["p50 µs"], out.values["p99 µs"]] = [each[pairs >> 1], each[Math.floor((pairs * 99) / 100)]];
}

async function pairs() {
  const each = quick ? 10 : 100;
  const began = await ready();
  await Promise.all(Array.from({ length: 64 }, async (_, key) => {
    for (let number = 0; number < each; number += 1) await attempt(`w:${key}`, async () => {});
  }));
  out.values["pairs/s"] = out.locks / ((performance.now() - began) / 1e3);
}

async function sale(inMemory) {
  const buyers = Math.floor((quick ? 300 : 1000) / Number(processes));
  const [inside, stock] = [[0, 0], [0, 0]];
  const body = async (item) => {
    inside[item] += 1;
    out.overlaps += inside[item] > 1 ? 1 : 0;
    if (inMemory) {
      const sold = stock[item];
      await new Promise(setImmediate);
      stock[item] = sold + 1;
    } else {
      const [sold, handOffs, last] = ((await client.get(`stock:${item}`)) ?? "0 0 0").split(" ");
      await client.set(`stock:${item}`, `${Number(sold) + 1} ${Number(handOffs) + (last === part ? 0 : 1)} ${part}`);
    }
    inside[item] -= 1;
  };
  const began = await ready();
  await Promise.all(Array.from({ length: buyers }, (_, buyer) => attempt(`item:${buyer % 2}`, () => body(buyer % 2))));
  const wall = performance.now() - began;
  out.values["wall ms"] = wall;
  out.values["µs per hand-over"] = (wall * 1e3) / (buyers / 2);
}

async function fairness() {
  const [seconds, tasks] = [quick ? 0.8 : 3, Math.floor(50 / Number(processes))];
  const [shares, longest, held] = [Array(tasks).fill(0), Array(tasks).fill(0), Array(tasks).fill(0)];
  const began = await ready();
  const end = began + seconds * 1e3;
  await Promise.all(shares.map(async (_, number) => {
    while (performance.now() < end) {
      const asked = performance.now();
      let had;
      try {
        had = await redlock.acquire(["w5:0"], 30000);
      } catch {
        had = null;
      }
      const entered = performance.now();
      longest[number] = Math.max(longest[number], entered - asked);
      if (!had) continue;
      if (entered < end) {
        await sleep(1);
        held[number] += performance.now() - entered;
        shares[number] += 1;
      }
      await had.release().catch(() => {});
    }
  }));
  [out.locks, out.shares] = [shares.reduce((sum, one) => sum + one, 0), shares];
  const sum = held.reduce((total, one) => total + one, 0);
  Object.assign(out.values, { "span s": (performance.now() - began) / 1e3, "held s": sum / 1e3, "longest wait ms": Math.max(...longest) });
}

const workloads = { pair, pairs, sale: () => sale(false), "sale-in-memory": () => sale(true), fairness };
(async () => {
  await workloads[workload]();
  out.ended = micros();
  console.log(JSON.stringify(out));
  await lines.next();
  process.exit(0);
})();
