package {{ id }}

import android.content.Context
import java.io.File
import java.io.InputStream
import kotlin.coroutines.CoroutineContext
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.sync.Mutex
import kotlinx.coroutines.sync.withLock
import kotlinx.coroutines.withContext

/**
 * The program whose files are in the [folder] of the app's assets: `manifest.json`, the program itself unless [source] gives it, and what else it needs.
 *
 * It is copied from there and opened when it is first used, and used by one at a time.
 */
internal class LoadedProgram(
    context: Context,
    private val folder: String,
    private val source: ((ProgramFile) -> InputStream)? = null,
    private val open: (File) -> Methods = ::ExecuTorchMethods,
) : AutoCloseable {
    private val context = context.applicationContext
    private val turn = Mutex()
    private var methods: Methods? = null

    @Volatile
    private var closed = false

    /** What the program takes, returns and needs. Read it where [use] computes: it is a file. */
    val manifest: Manifest by lazy { Manifest.parse(text("manifest.json")) }

    /** The text of one of the files that came with the program; null where there is none. */
    fun textOrNull(name: String): String? = if (name in context.assets.list(folder).orEmpty()) text(name) else null

    /**
     * What [block] makes of the program's methods, computed on Dispatchers.Default. When the caller is cancelled, it ends at its next call of a method.
     *
     * Throws IllegalStateException after [close], IOException where the program cannot be copied from where it is.
     */
    suspend fun <T> use(block: (Methods) -> T): T = try {
        turn.withLock {
            check(!closed) { "This model was closed." }
            val caller = currentCoroutineContext()
            withContext(Dispatchers.Default) { block(UntilCancelled(methods ?: load(), caller)) }
        }
    } finally {
        freeIfClosed()
    }

    /** Frees the program's memory: now, or when the call that is under way has ended. */
    override fun close() {
        closed = true
        freeIfClosed()
    }

    private fun load(): Methods {
        val program = manifest.program()
        val file = storedFile(File(context.noBackupFilesDir, folder), program) { source?.invoke(program) ?: context.assets.open("$folder/${program.name}") }
        return CheckedMethods(open(file), manifest.methods()).also { methods = it }
    }

    private fun text(name: String): String = context.assets.open("$folder/$name").bufferedReader().use { it.readText() }

    /** Whoever holds the turn comes here after it, so that nothing stays that was closed meanwhile. */
    private fun freeIfClosed() {
        if (closed && turn.tryLock()) {
            try {
                methods?.close()
                methods = null
            } finally {
                turn.unlock()
            }
        }
    }
}

private fun Manifest.program(): ProgramFile {
    val name = json.getString("program")
    val facts = json.getJSONObject("files").getJSONObject(name)
    return ProgramFile(name, facts.getLong("size_bytes"), facts.getString("sha256"))
}

private class UntilCancelled(private val methods: Methods, private val caller: CoroutineContext) : Methods {
    override fun call(method: String, inputs: List<Tensor>): List<Tensor> {
        caller.ensureActive()
        return methods.call(method, inputs)
    }

    override fun close() = Unit // it is not ours to close
}
