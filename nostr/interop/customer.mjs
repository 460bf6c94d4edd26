// A customer that shares no code with the provider: nostr-tools makes, signs and
// verifies every event. It is given a relay and the provider's public key, and holds
// the conversations that matter, one after the other.
import assert from 'node:assert/strict'
import { finalizeEvent, generateSecretKey, getPublicKey, verifyEvent } from 'nostr-tools/pure'
import { Relay, useWebSocketImplementation } from 'nostr-tools/relay'
import WebSocket from 'ws'

useWebSocketImplementation(WebSocket)

const [url, provider] = process.argv.slice(2)
const key = generateSecretKey()
const customer = getPublicKey(key)
const relay = await Relay.connect(url)
const now = () => Math.floor(Date.now() / 1000)
const tag = (event, name) => event.tags.find((t) => t[0] === name)

function sign(kind, content, tags) {
  return finalizeEvent({ kind, created_at: now(), tags, content }, key)
}

// job publishes a request and yields the answers to it as they come.
async function job(content, tags, kind = 5900) {
  const request = sign(kind, content, [['p', provider], ...tags])
  const answers = []
  let wake = () => {}
  const sub = relay.subscribe([{ kinds: [7000, kind + 1000], authors: [provider], '#e': [request.id] }], {
    onevent(e) {
      assert.ok(verifyEvent(e), 'an answer whose signature is wrong')
      answers.push(e)
      wake()
    },
  })
  await relay.publish(request)
  const until = async (done) => {
    const limit = Date.now() + 60_000
    while (!answers.some(done)) {
      assert.ok(Date.now() < limit, `no such answer in time, but ${JSON.stringify(answers)}`)
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, 250) })
    }
    return answers.find(done)
  }
  return { request, answers, until, close: () => sub.close() }
}

const feedback = (j) => j.answers.filter((e) => e.kind === 7000).map((e) => tag(e, 'status').slice(1).join(' ').trim())

async function step(name, talk) {
  await talk()
  console.log('ok', name)
}

await step('a job is done and answered', async () => {
  const j = await job('hello <&> "wörld" \u2028 \u{1F30A}', [['i', 'some input', 'text']])
  const result = await j.until((e) => e.kind === 6900)
  assert.equal(result.content, 'done: hello <&> "wörld" \u2028 \u{1F30A}')
  assert.equal(tag(result, 'status')[1], 'success')
  assert.equal(tag(result, 'e')[1], j.request.id)
  assert.equal(tag(result, 'p')[1], customer)
  assert.deepEqual(tag(result, 'i'), ['i', 'some input', 'text'])
  assert.equal(JSON.parse(tag(result, 'request')[1]).id, j.request.id)
  assert.match(tag(result, 'runtime')[1], /^\d+$/)
  assert.equal(feedback(j)[0], 'processing Started')
  j.close()
})

await step('a job that hangs is ended, tried again and given up', async () => {
  const j = await job('hang', [['timeout', '1']])
  const result = await j.until((e) => e.kind === 6900)
  const said = JSON.parse(result.content)
  assert.equal(said.error, true)
  assert.equal(said.code, 'TIMEOUT')
  assert.equal(said.retry.maxRetries, 2)
  assert.equal(said.retry.attemptNumber, 2)
  assert.equal(said.retry.backoffHistory.length, 2)
  await j.until((e) => e.kind === 7000 && tag(e, 'status')[1] === 'error')
  assert.deepEqual(feedback(j), [
    'processing Started',
    'processing Retry 1/2 after error: Operation timed out after 1000ms',
    'processing Retry 2/2 after error: Operation timed out after 1000ms',
    'error TIMEOUT: Operation timed out after 1000ms',
  ])
  const times = j.answers.filter((e) => e.kind === 7000).map((e) => e.created_at)
  times.slice(1).forEach((t, i) => assert.ok(t > times[i], 'created_at does not rise'))
  j.close()
})

await step('a timeout that is none is refused', async () => {
  for (const bad of ['0', '-5', 'abc', '1.5', '1e3', '30s', '']) {
    const j = await job('hello', [['timeout', bad]])
    const result = await j.until((e) => e.kind === 6900)
    assert.equal(JSON.parse(result.content).code, 'INVALID_REQUEST')
    assert.ok(!feedback(j).some((f) => f.startsWith('processing')))
    j.close()
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
})

await step('a job is cancelled by its customer', async () => {
  const j = await job('hang', [['timeout', '30']])
  await j.until((e) => e.kind === 7000 && tag(e, 'status')[1] === 'processing')
  await relay.publish(sign(5, 'never mind', [['e', j.request.id], ['k', '5900']]))
  const last = await j.until((e) => e.kind === 7000 && tag(e, 'status')[1] === 'error')
  assert.match(tag(last, 'status')[2], /cancelled/)
  await new Promise((resolve) => setTimeout(resolve, 2000))
  assert.ok(!j.answers.some((e) => e.kind === 6900), 'a cancelled job has a result')
  j.close()
})

relay.close()
