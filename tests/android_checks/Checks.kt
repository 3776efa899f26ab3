package {{ id }}

import android.app.Activity
import android.content.Context
import android.content.res.AssetManager
import android.graphics.Bitmap
import java.io.ByteArrayInputStream
import java.io.File
import java.io.IOException
import java.io.InputStream
import java.security.MessageDigest
import java.util.concurrent.CountDownLatch
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.json.JSONObject

/** An app whose assets and storage are folders of this machine. */
private class FolderApp(private val assets: File, private val storage: File) : Activity() {
    override fun getAssets() = object : AssetManager() {
        override fun open(fileName: String): InputStream = File(this@FolderApp.assets, fileName).inputStream()

        override fun list(path: String): Array<String>? = File(this@FolderApp.assets, path).list()
    }

    override fun getNoBackupFilesDir() = storage

    override fun getApplicationContext(): Context = this
}

/** Answers every call after [answer], and counts what happens to it. */
private class Counting(private val answer: (List<Tensor>) -> List<Tensor>) : Methods {
    var closed = 0
    var running = 0
    var most = 0

    override fun call(method: String, inputs: List<Tensor>): List<Tensor> {
        synchronized(this) { most = maxOf(most, ++running) }
        return answer(inputs).also { synchronized(this) { running-- } }
    }

    override fun close() {
        closed++
    }
}

private fun failure(block: () -> Unit): String = try {
    block()
    "nothing"
} catch (error: Throwable) {
    "${error.javaClass.simpleName}: ${error.message}"
}

private val SPEC = JSONObject(
    """{"methods": [{"name": "step", "dims": [{"name": "batch", "verified": [1, 4]}, {"name": "tokens", "verified": [1, 8]}], "inputs": [
        {"name": "image", "dtype": "float32", "shape": ["batch", 3], "range": [-1, 1], "first_of": null},
        {"name": "tokens", "dtype": "int64", "shape": ["batch", "tokens"], "range": [0, 9], "first_of": null},
        {"name": "position", "dtype": "int32", "shape": [1], "range": [0, 9], "first_of": "tokens"}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape_at_least": [1, 2]}]}]}""",
)

private fun floats(vararg shape: Long) = FloatTensor(shape, FloatArray(shape.fold(1L, Long::times).toInt()))

private fun tokens(batch: Long, vararg values: Long) = LongTensor(longArrayOf(batch, values.size / batch), values)

private fun position(value: Int) = IntTensor(longArrayOf(1), intArrayOf(value))

private fun refusals(): Map<String, String> {
    val answer = floats(1, 2)
    val methods = CheckedMethods(Counting { listOf(answer) }, Manifest(SPEC).methods())
    val given = mapOf(
        "right" to listOf(floats(2, 3), tokens(2, 1, 2, 3, 4), position(8)),
        "count" to listOf(floats(1, 3)),
        "type" to listOf(floats(1, 3), position(0), position(0)),
        "rank" to listOf(floats(3), tokens(1, 1), position(0)),
        "size" to listOf(floats(1, 4), tokens(1, 1), position(0)),
        "bound" to listOf(floats(5, 3), tokens(5, 1, 1, 1, 1, 1), position(0)),
        "unequal" to listOf(floats(2, 3), tokens(1, 1), position(0)),
        "value" to listOf(floats(1, 3), tokens(1, 10), position(0)),
        "negative" to listOf(floats(1, 3), tokens(1, -1), position(0)),
        "last" to listOf(floats(1, 3), tokens(1, 1, 1, 1), position(8)),
    )
    val other = CheckedMethods(Counting { listOf(position(1)) }, Manifest(SPEC).methods())
    return given.mapValues { (_, inputs) -> failure { methods.call("step", inputs) } } + mapOf(
        "name" to failure { methods.call("stop", listOf()) },
        "answer" to failure { other.call("step", given.getValue("right")) },
    )
}

private fun storage(folder: File): Map<String, Any> {
    val content = ByteArray(3_000_000) { (it * 31).toByte() }
    fun asset(bytes: ByteArray) = ProgramFile("p.pte", bytes.size.toLong(), MessageDigest.getInstance("SHA-256").digest(bytes).joinToString("") { "%02x".format(it) })
    var opened = 0
    val stored = storedFile(folder, asset(content)) { opened++; content.inputStream() }
    val again = storedFile(folder, asset(content)) { opened++; content.inputStream() }
    val cut = failure { storedFile(File(folder, "cut"), asset(content)) { ByteArrayInputStream(content, 0, 1000) } }
    val changed = failure { storedFile(File(folder, "changed"), asset(content)) { content.clone().also { it[5] = 0 }.inputStream() } }
    val full = failure { storedFile(File(folder, "full"), ProgramFile("p.pte", Long.MAX_VALUE, "0")) { content.inputStream() } }
    File(folder, "${stored.name}.partial").writeText("of a process that was killed")
    val next = storedFile(folder, asset(content + 1)) { (content + 1).inputStream() }
    return mapOf(
        "equal" to next.readBytes().contentEquals(content + 1), "same" to (again == stored), "opened" to opened, "cut" to cut, "changed" to changed, "full" to full,
        "left" to folder.walk().filter { it.isFile && it.name != "lock" }.map { it.name }.toList(), "name" to next.name,
    )
}

private fun loaded(assets: File, model: String, storage: File): Map<String, Any?> = runBlocking {
    val methods = Counting { Thread.sleep(20); listOf(floats(1, 8)) }
    val program = LoadedProgram(FolderApp(assets, storage), "models/$model") { methods }
    val image = floats(1, 3, 16, 16)
    List(6) { async(Dispatchers.Default) { program.use { it.call("classify", listOf(image)) } } }.awaitAll()
    val begun = CountDownLatch(1)
    var calls = 0
    val cancelled = launch(Dispatchers.Default) {
        program.use { while (true) it.call("classify", listOf(image)).also { calls++; begun.countDown() } }
    }
    begun.await()
    cancelled.cancel(CancellationException("enough"))
    cancelled.join()
    val free = CountDownLatch(1)
    val inside = CountDownLatch(1)
    val last = async(Dispatchers.Default) { program.use { inside.countDown(); free.await(); it.call("classify", listOf(image)).size } }
    inside.await()
    program.close()
    val closedDuring = methods.closed
    free.countDown()
    val answered = last.await()
    mapOf(
        "at once" to methods.most, "closed during a call" to closedDuring, "answered" to answered, "closed" to methods.closed, "cancelled" to cancelled.isCancelled,
        "after" to failure { runBlocking { program.use { it.call("classify", listOf(image)) } } }, "none" to program.textOrNull("nothing.json"), "calls" to calls,
        "file" to File(storage, "models/$model").list()!!.filter { it != "lock" },
    )
}

private fun fetched(assets: File, model: String, storage: File): Map<String, Any?> = runBlocking {
    val asked = mutableListOf<ProgramFile>()
    val methods = Counting { listOf(floats(1, 8)) }
    fun program(source: (ProgramFile) -> InputStream) = LoadedProgram(FolderApp(assets, storage), "models/$model", source) { methods }
    val call: (Methods) -> Int = { it.call("classify", listOf(floats(1, 3, 16, 16))).size }
    val wrong = program { asked += it; "an error page".byteInputStream() }
    val refused = List(2) { failure { runBlocking { wrong.use(call) } } }
    val right = program { asked += it; File(assets, "models/$model/${it.name}").inputStream() }
    val answers = List(2) { right.use(call) }
    val later = program { throw IOException("no network") }.use(call)
    mapOf(
        "refused" to refused, "answers" to answers + later, "asked" to asked.map { it.name }, "sizes" to asked.map { it.sizeBytes }.toSet().toList(),
        "file" to File(storage, "models/$model").list()!!.filter { it != "lock" },
    )
}

private fun pixels(): Map<String, Any> {
    val colors = IntArray(70 * 130) { 0x12000000 + it * 7919 }
    val wanted = colors.flatMap { listOf((it shr 16).toByte(), (it shr 8).toByte(), it.toByte()) }.toByteArray()
    val kinds = listOf(Bitmap.Config.ARGB_8888, Bitmap.Config.HARDWARE)
    val images = kinds.map { Bitmap.createBitmap(colors, 70, 130, it).toRgbImage() }
    return mapOf("read" to images.all { it.pixels.contentEquals(wanted) && it.width == 70 }, "back" to images[0].toBitmap().toRgbImage().pixels.contentEquals(wanted))
}

/** Arguments: the assets of a package of the toy model, its name, and a folder to write in. */
public fun main(arguments: Array<String>) {
    val (assets, model, folder) = arguments
    val all = mapOf(
        "refusals" to refusals(), "storage" to storage(File(folder, "stored")), "loaded" to loaded(File(assets), model, File(folder, "app")), "pixels" to pixels(),
        "fetched" to fetched(File(assets), model, File(folder, "fetched")),
    )
    println(JSONObject(all))
}
