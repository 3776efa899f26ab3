package {{ id }}

import java.io.File
import java.util.WeakHashMap
import org.pytorch.executorch.DType
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor as NativeTensor

/**
 * The methods of a program in ExecuTorch's runtime; [program] is mapped into memory, not read.
 *
 * One call at a time. Each method has a state of its own: ExecuTorch's Module keeps the memory of methods apart. What a method returns is a copy,
 * and must not be changed if it is given to another: it is then sent to the runtime once, however often (the keys and values of a decoder).
 */
public class ExecuTorchMethods(program: File) : Methods {
    private val module = Module.load(program.path, Module.LOAD_MODE_MMAP)
    private val sent = WeakHashMap<Tensor, NativeTensor?>()

    /** Throws what the runtime throws: a RuntimeException. */
    override fun call(method: String, inputs: List<Tensor>): List<Tensor> {
        val values = inputs.map { EValue.from(native(it)) }.toTypedArray()
        return module.execute(method, *values).map { answer(it.toTensor()) }
    }

    override fun close() {
        module.close()
    }

    private fun native(tensor: Tensor): NativeTensor {
        if (!sent.containsKey(tensor)) return sentTensor(tensor)
        return sent[tensor] ?: sentTensor(tensor).also { sent[tensor] = it }
    }

    private fun answer(tensor: NativeTensor): Tensor = received(tensor).also { sent[it] = null }
}

private fun sentTensor(tensor: Tensor): NativeTensor = when (tensor) {
    is FloatTensor -> NativeTensor.fromBlob(tensor.data, tensor.shape)
    is LongTensor -> NativeTensor.fromBlob(tensor.data, tensor.shape)
    is IntTensor -> NativeTensor.fromBlob(tensor.data, tensor.shape)
    is ByteTensor -> NativeTensor.fromBlobUnsigned(tensor.data, tensor.shape)
}

private fun received(tensor: NativeTensor): Tensor = when (val type = tensor.dtype()) {
    DType.FLOAT -> FloatTensor(tensor.shape(), tensor.dataAsFloatArray)
    DType.INT64 -> LongTensor(tensor.shape(), tensor.dataAsLongArray)
    DType.INT32 -> IntTensor(tensor.shape(), tensor.dataAsIntArray)
    DType.UINT8 -> ByteTensor(tensor.shape(), tensor.dataAsUnsignedByteArray)
    else -> throw IllegalStateException("The program returned a tensor of $type, which this library does not read.")
}
