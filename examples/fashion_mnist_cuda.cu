// Kernels for readers, not for speed: a thread computes one number, and sums have a fixed order, so
// that two runs give the same bits.
#include <cuda_runtime.h>

#include <string>

#include "fashion_mnist_cuda.h"

namespace {

constexpr int kThreads = 256;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

// Grows on demand.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  T* room_for(std::size_t count) {
    if (count > size_) {
      check(cudaFree(data_), "cudaFree");
      data_ = nullptr;
      check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cudaMalloc");
      size_ = count;
    }
    return data_;
  }
  // The caller may reuse the source at once.
  void fill(const T* from, std::size_t count, cudaStream_t stream) {
    if (count == 0) return;
    check(cudaMemcpyAsync(room_for(count), from, count * sizeof(T), cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
    check(cudaStreamSynchronize(stream), "copy to the GPU");
  }
  std::vector<T> read(std::size_t first, std::size_t count, cudaStream_t stream) const {
    std::vector<T> values(count);
    check(cudaMemcpyAsync(values.data(), data_ + first, count * sizeof(T), cudaMemcpyDeviceToHost,
                          stream),
          "copy from the GPU");
    check(cudaStreamSynchronize(stream), "copy from the GPU");
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// The number of this thread; threads beyond the last number do nothing.
__device__ int thread_number() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// A matrix, or its transpose if the steps are exchanged.
struct View {
  const float* data;
  int row_step, column_step;
  __device__ float at(int row, int column) const {
    return data[static_cast<std::size_t>(row) * row_step +
                static_cast<std::size_t>(column) * column_step];
  }
};
View plain(const float* data, int columns) { return {data, columns, 1}; }
View transposed(const float* data, int columns) { return {data, 1, columns}; }

// out = a b, where out has rows x columns and `inner` is the length of the sums.
__global__ void multiply(float* out, View a, View b, int rows, int columns, int inner) {
  const int i = thread_number();
  if (i >= rows * columns) return;
  float sum = 0;
  for (int k = 0; k < inner; ++k) sum += a.at(i / columns, k) * b.at(k, i % columns);
  out[i] = sum;
}

__global__ void load_images(float* x, const std::uint8_t* pixels, const std::uint32_t* images,
                            int count) {
  const int i = thread_number();
  if (i >= count * kInput) return;
  const std::size_t image = images[i / kInput];
  x[i] = (static_cast<float>(pixels[image * kInput + i % kInput]) - kPixelMean) / kPixelDeviation;
}

__global__ void add_bias_tanh(float* hidden, const float* bias, int count, int columns) {
  const int i = thread_number();
  if (i < count) hidden[i] = tanhf(hidden[i] + bias[i % columns]);
}

// One row a thread. The logits become dLoss/dLogits; losses and hits are the row's.
__global__ void softmax(float* logits, const float* bias, const std::uint8_t* labels,
                        const std::uint32_t* images, float* losses, float* hits, int rows,
                        float weight) {
  const int row = thread_number();
  if (row >= rows) return;
  float* const p = logits + row * kClasses;
  int best = 0;
  float sum = 0;
  for (int c = 0; c < kClasses; ++c) {
    p[c] += bias[c];
    if (p[c] > p[best]) best = c;
  }
  const float most = p[best];
  for (int c = 0; c < kClasses; ++c) sum += p[c] = expf(p[c] - most);
  const int label = labels[images[row]];
  for (int c = 0; c < kClasses; ++c) p[c] /= sum;
  losses[row] = -logf(fmaxf(p[label], 1e-12f)) * weight;
  hits[row] = best == label ? 1.0f : 0.0f;
  p[label] -= 1.0f;
  for (int c = 0; c < kClasses; ++c) p[c] *= weight;
}

__global__ void times_tanh_slope(float* back, const float* hidden, int count) {
  const int i = thread_number();
  if (i < count) back[i] *= 1.0f - hidden[i] * hidden[i];
}

__global__ void column_sums(float* out, const float* in, int rows, int columns) {
  const int column = thread_number();
  if (column >= columns) return;
  float sum = 0;
  for (int row = 0; row < rows; ++row) sum += in[static_cast<std::size_t>(row) * columns + column];
  out[column] = sum;
}

__global__ void descend(float* weights, float* velocity, const float* gradient, int count,
                        float rate, float momentum) {
  const int i = thread_number();
  if (i >= count) return;
  velocity[i] = momentum * velocity[i] + gradient[i];
  weights[i] -= rate * velocity[i];
}

int gpu_of(int local_rank) {
  int count = 0;
  const auto result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    throw NoGpu(std::string("no GPU: ") +
                (result != cudaSuccess ? cudaGetErrorString(result) : "CUDA sees none"));
  }
  return local_rank % count;
}

}  // namespace

struct CudaNet::Memory {
  explicit Memory(int units) : layout{units} {}
  ~Memory() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }

  // Launches a kernel for a number of threads.
  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, int threads, Arguments... arguments) {
    if (threads == 0) return;
    kernel<<<(threads + kThreads - 1) / kThreads, kThreads, 0, stream>>>(arguments...);
    check(cudaGetLastError(), "a kernel's launch");
  }
  void multiply_into(float* out, View a, View b, int rows, int columns, int inner) {
    launch(multiply, rows * columns, out, a, b, rows, columns, inner);
  }
  void forward(const std::uint8_t* from, const std::uint8_t* from_labels, int rows, float weight);
  void back(int rows);

  const Layout layout;
  cudaStream_t stream = nullptr;
  DeviceArray<std::uint8_t> pixels, labels, test_pixels, test_labels;
  DeviceArray<std::uint32_t> images;
  DeviceArray<float> weights, gradient, velocity;  // gradient: with the loss
  DeviceArray<float> x, hidden, probabilities, back_hidden, losses, hits;
};

// `images` selects the rows of `from`.
void CudaNet::Memory::forward(const std::uint8_t* from, const std::uint8_t* from_labels, int rows,
                              float weight) {
  const auto n = static_cast<std::size_t>(rows);
  const int units = layout.hidden;
  const float* const w = weights.data();
  float* const inputs = x.room_for(n * kInput);
  float* const h = hidden.room_for(n * units);
  float* const p = probabilities.room_for(n * kClasses);
  launch(load_images, rows * kInput, inputs, from, images.data(), rows);
  multiply_into(h, plain(inputs, kInput), plain(w, units), rows, units, kInput);
  launch(add_bias_tanh, rows * units, h, w + layout.b1(), rows * units, units);
  multiply_into(p, plain(h, units), plain(w + layout.w2(), kClasses), rows, kClasses, units);
  launch(softmax, rows, p, w + layout.b2(), from_labels, images.data(), losses.room_for(n),
         hits.room_for(n), rows, weight);
}

// From dLoss/dLogits to the gradient of all parameters.
void CudaNet::Memory::back(int rows) {
  const int units = layout.hidden;
  const float* const w2 = weights.data() + layout.w2();
  float* const g = gradient.data();
  const float *const h = hidden.data(), *const error = probabilities.data();
  float* const b = back_hidden.room_for(static_cast<std::size_t>(rows) * units);
  launch(column_sums, 1, g + layout.parameters(), losses.data(), rows, 1);
  multiply_into(g + layout.w2(), transposed(h, units), plain(error, kClasses), units, kClasses,
                rows);
  launch(column_sums, kClasses, g + layout.b2(), error, rows, kClasses);
  multiply_into(b, plain(error, kClasses), transposed(w2, kClasses), rows, units, kClasses);
  launch(times_tanh_slope, rows * units, b, h, rows * units);
  multiply_into(g, transposed(x.data(), kInput), plain(b, units), kInput, units, rows);
  launch(column_sums, units, g + layout.b1(), b, rows, units);
}

CudaNet::CudaNet(int local_rank, const Options& options, const Dataset& train)
    : memory_(std::make_unique<Memory>(options.hidden)) {
  Memory& m = *memory_;
  check(cudaSetDevice(gpu_of(local_rank)), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&m.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  m.pixels.fill(train.pixels.data(), train.pixels.size(), m.stream);
  m.labels.fill(train.labels.data(), train.labels.size(), m.stream);
  std::vector<float> first(gradient_size(), 0.0f);
  m.velocity.fill(first.data(), first.size(), m.stream);
  m.gradient.fill(first.data(), first.size(), m.stream);
  initialise(first.data(), m.layout, options.seed);
  m.weights.fill(first.data(), first.size(), m.stream);
}

CudaNet::~CudaNet() = default;

void* CudaNet::stream() const { return memory_->stream; }
float* CudaNet::gradient_values() const { return memory_->gradient.data(); }
std::size_t CudaNet::gradient_size() const {
  return static_cast<std::size_t>(memory_->layout.parameters()) + 1;
}

void CudaNet::gradient(const std::uint32_t* images, std::size_t count, std::size_t global_batch) {
  Memory& m = *memory_;
  m.images.fill(images, count, m.stream);
  const int rows = static_cast<int>(count);
  m.forward(m.pixels.data(), m.labels.data(), rows, 1.0f / static_cast<float>(global_batch));
  m.back(rows);  // without rows: the sums are zeros
}

float CudaNet::loss() const {
  return memory_->gradient.read(gradient_size() - 1, 1, memory_->stream)[0];
}

void CudaNet::update(float rate, float momentum) {
  Memory& m = *memory_;
  const int count = m.layout.parameters();
  m.launch(descend, count, m.weights.data(), m.velocity.data(), m.gradient.data(), count, rate,
           momentum);
}

std::int64_t CudaNet::right(const Dataset& data, int first, int last) {
  if (first == last) return 0;
  Memory& m = *memory_;
  const auto rows = static_cast<std::size_t>(last - first);
  m.test_pixels.fill(data.image(first), rows * kInput, m.stream);
  m.test_labels.fill(data.labels.data() + first, rows, m.stream);
  std::vector<std::uint32_t> all(rows);
  for (std::size_t i = 0; i < rows; ++i) all[i] = static_cast<std::uint32_t>(i);
  m.images.fill(all.data(), rows, m.stream);
  m.forward(m.test_pixels.data(), m.test_labels.data(), last - first, 1.0f);
  std::int64_t count = 0;
  for (const float hit : m.hits.read(0, rows, m.stream)) count += hit > 0 ? 1 : 0;
  return count;
}

std::vector<float> CudaNet::weights() const {
  return memory_->weights.read(0, gradient_size() - 1, memory_->stream);
}
