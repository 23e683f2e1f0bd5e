/** Longest wait for anything, in milliseconds: never reached unless something is broken. */
const PATIENCE = 30_000;

/** Asks until the answer is truthy, and returns it. */
export async function until(what, ask) {
  const begin = Date.now();
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() - begin > PATIENCE) throw new Error(`not within ${PATIENCE} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
