// Makes calls with the SDKs from npm. Reads {gateway, header, file, toolResult, calls} from
// standard input and prints a line {id, text, error} for each call.
import Anthropic, { toFile as toAnthropicFile } from '@anthropic-ai/sdk'
import { GoogleGenAI } from '@google/genai'
import OpenAI, { toFile } from 'openai'
import fs from 'node:fs'

const { gateway, header, file, toolResult, calls } = JSON.parse(fs.readFileSync(0, 'utf8'))
const question = 'How warm is it?'
const citySchema = { type: 'object', properties: { city: { type: 'string' } } }

// checkToolCall throws unless the model calls the tool.
function checkToolCall(name, args) {
  if (name !== 'weather' || args?.city !== 'Oslo') throw new Error('the answer has no call of the tool weather for Oslo')
}

const clients = {
  // Each function returns what the model said, or the size of the uploaded file. partial
  // collects the text of a stream, which counts also if the stream fails.
  async openai({ id, call }, partial) {
    const client = new OpenAI({ baseURL: `${gateway}/p/openai/v1`, apiKey: 'none', defaultHeaders: { [header]: id } })
    const ask = { model: 'm', messages: [{ role: 'user', content: question }] }
    if (call === 'upload') return (await client.files.create({ file: await toFile(Buffer.from(file), 'a.txt'), purpose: 'batch' })).bytes
    if (call === 'responses') return (await client.responses.create({ model: 'm', input: question })).output_text
    if (call === 'stream') {
      for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) partial.text += chunk.choices[0]?.delta?.content ?? ''
      return partial.text
    }
    if (call === 'plain') return (await client.chat.completions.create(ask)).choices[0].message.content
    const tools = [{ type: 'function', function: { name: 'weather', parameters: citySchema } }]
    const { message } = (await client.chat.completions.create({ ...ask, tools })).choices[0]
    const [use] = message.tool_calls
    checkToolCall(use.function.name, JSON.parse(use.function.arguments))
    const messages = [...ask.messages, message, { role: 'tool', tool_call_id: use.id, content: toolResult }]
    return (await client.chat.completions.create({ ...ask, messages, tools })).choices[0].message.content
  },
  async anthropic({ id, call }, partial) {
    const client = new Anthropic({ baseURL: `${gateway}/p/anthropic`, apiKey: 'none', defaultHeaders: { [header]: id } })
    const ask = { model: 'm', max_tokens: 100, messages: [{ role: 'user', content: question }] }
    if (call === 'upload') return (await client.beta.files.upload({ file: await toAnthropicFile(Buffer.from(file), 'a.txt', { type: 'text/plain' }) })).size_bytes
    if (call === 'stream') {
      for await (const event of await client.messages.create({ ...ask, stream: true })) partial.text += event.delta?.text ?? ''
      return partial.text
    }
    if (call === 'plain') return (await client.messages.create(ask)).content[0].text
    const tools = [{ name: 'weather', input_schema: citySchema }]
    const { content } = await client.messages.create({ ...ask, tools })
    checkToolCall(content[0].name, content[0].input)
    const messages = [...ask.messages, { role: 'assistant', content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: content[0].id, content: toolResult }] }]
    return (await client.messages.create({ ...ask, messages, tools })).content[0].text
  },
  async google({ id, call }, partial) {
    const client = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: `${gateway}/p/gemini`, headers: { [header]: id } } })
    const contents = [{ role: 'user', parts: [{ text: question }] }]
    if (call === 'upload') return (await client.files.upload({ file: new Blob([file], { type: 'text/plain' }), config: { mimeType: 'text/plain' } })).sizeBytes
    if (call === 'stream') {
      for await (const chunk of await client.models.generateContentStream({ model: 'm', contents })) partial.text += chunk.text ?? ''
      return partial.text
    }
    if (call === 'plain') return (await client.models.generateContent({ model: 'm', contents })).text
    const config = { tools: [{ functionDeclarations: [{ name: 'weather', parametersJsonSchema: citySchema }] }] }
    const answer = await client.models.generateContent({ model: 'm', contents, config })
    const [use] = answer.functionCalls
    checkToolCall(use.name, use.args)
    contents.push(answer.candidates[0].content, { role: 'user', parts: [{ functionResponse: { name: 'weather', response: { output: toolResult } } }] })
    return (await client.models.generateContent({ model: 'm', contents, config })).text
  },
}

await Promise.all(
  calls.map(async (call) => {
    const partial = { text: '' }
    const result = { id: call.id, text: '', error: '' }
    try {
      result.text = String(await clients[call.api](call, partial))
    } catch (e) {
      result.text = partial.text
      result.error = `${e?.constructor?.name}: ${e?.message}` + (e?.cause ? ` (${e.cause})` : '')
    }
    console.log(JSON.stringify(result))
  }),
)
